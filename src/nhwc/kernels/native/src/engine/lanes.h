// Channels in register blocks: several vectors at a time, then one, then what is left in part.
#pragma once

#include <algorithm>

#include "simd.h"
#include "step.h"

namespace nhwc {
namespace engine {

// Vectors of channels whose accumulators stay in registers together.
constexpr int WIDE = REGISTERS == 32 ? 4 : 2;

// VECTORS whole ones, or the first `rest` floats of a single one.
template <int VECTORS, bool PART>
struct Lanes {
    static constexpr int vectors = VECTORS;
    int64_t rest;

    vf get(const float* from, int k) const { return PART ? load_part(from, rest) : load(from + k * LANES); }
    void put(float* to, int k, vf value) const { PART ? store_part(to, value, rest) : store(to + k * LANES, value); }
};

// body(lanes, channel) for the blocks of channels [begin, end).
template <int VECTORS, class Body>
inline void for_channels(int64_t begin, int64_t end, const Body& body) {
    int64_t c = begin;
    for (; c + VECTORS * LANES <= end; c += VECTORS * LANES) body(Lanes<VECTORS, false>{0}, c);
    for (; c + LANES <= end; c += LANES) body(Lanes<1, false>{0}, c);
    if (c < end) body(Lanes<1, true>{end - c}, c);
}

// A number of equal parts, each of a multiple of `unit` but the last: how channels are shared out among tasks.
struct Parts {
    int64_t size, count;
    Parts(int64_t whole, int64_t wanted, int64_t unit)
        : size(std::max(unit, (std::min(whole, wanted) + unit - 1) / unit * unit)), count((whole + size - 1) / size) {}
    int64_t begin(int64_t part) const { return part * size; }
    int64_t end(int64_t part, int64_t whole) const { return std::min(whole, (part + 1) * size); }
};

// The start of a row of pixels.
inline float* row_of(const Rows& rows, float* base, int64_t n, int64_t d, int64_t h) {
    return base + n * rows.sn + d * rows.sd + h * rows.sh;
}

// NaN from either side stays one, as torch's maximum has it.
inline vf greater_of(vf a, vf b) {
    const vf found = at_least(a, b);
    return b != b ? b : found;
}
inline vf less_of(vf a, vf b) {
    const vf found = at_most(a, b);
    return b != b ? b : found;
}

}  // namespace engine
}  // namespace nhwc
