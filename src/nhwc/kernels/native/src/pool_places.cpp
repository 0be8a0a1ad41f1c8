// Moving channels-last pixels to and from the places that a maximum pooling's indices name, channel by channel.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// Tasks wanted for a scatter, and the fewest pixels that are worth one.
constexpr int64_t TASKS = 16, FEWEST_PIXELS = 1024;
// Source pixels whose places are bounded together.
constexpr int64_t GROUP = 16;

// The places that a group of pixels points to.
struct Bounds {
    int64_t low, high;
};

// Per group of GROUP source pixels, within samples.
inline std::vector<Bounds> bounds_of(const int64_t* places, int64_t samples, int64_t pixels, int64_t channels) {
    const int64_t groups = (pixels + GROUP - 1) / GROUP;
    std::vector<Bounds> bounds(static_cast<size_t>(samples * groups));
    parallel_for(samples * groups, grain_for(GROUP * channels), [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
            const int64_t first = k % groups * GROUP, count = std::min(GROUP, pixels - first) * channels;
            const int64_t* __restrict place = places + (k / groups * pixels + first) * channels;
            int64_t low = place[0], high = place[0];
            for (int64_t j = 1; j < count; ++j) {
                low = std::min(low, place[j]);
                high = std::max(high, place[j]);
            }
            bounds[static_cast<size_t>(k)] = {low, high};
        }
    });
    return bounds;
}

template <class T, bool ADD>
void put(T* at, const T* value) {
    if (ADD)
        store(at, load(at) + load(value));
    else
        *at = *value;
}

// to[places[p, c], c] = or += from[p, c], and zero where no place points. Each task owns a range of the target's pixels, so
// that nothing is written by two; it clears no further ahead than it must, while the memory is in the cache.
template <class T, bool ADD>
void scatter(const T* from, const int64_t* places, T* to, int64_t* outside, int64_t samples, int64_t pixels,
             int64_t plane, int64_t channels) {
    const std::vector<Bounds> bounds = bounds_of(places, samples, pixels, channels);
    for (const Bounds& each : bounds)
        if (each.low < 0 || each.high >= plane) {
            *outside = 1;
            return;
        }
    const int64_t groups = (pixels + GROUP - 1) / GROUP;
    const int64_t parts = std::max<int64_t>(1, std::min((TASKS + samples - 1) / samples, plane / FEWEST_PIXELS));
    const int64_t part = (plane + parts - 1) / parts;
    parallel_for(samples * parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / parts, first = std::min(plane, task % parts * part);
            const int64_t last = std::min(plane, first + part);
            T* target = to + sample * plane * channels;
            int64_t cleared = first;
            const auto clear_until = [&](int64_t until) {
                if (until <= cleared) return;
                std::memset(target + cleared * channels, 0, static_cast<size_t>((until - cleared) * channels) * sizeof(T));
                cleared = until;
            };
            for (int64_t g = 0; g < groups; ++g) {
                const Bounds& within = bounds[static_cast<size_t>(sample * groups + g)];
                if (within.high < first || within.low >= last) continue;
                clear_until(std::min(last, within.high + 1));
                const bool all = within.low >= first && within.high < last;
                for (int64_t p = g * GROUP; p < std::min(pixels, (g + 1) * GROUP); ++p) {
                    const int64_t* __restrict place = places + (sample * pixels + p) * channels;
                    const T* __restrict value = from + (sample * pixels + p) * channels;
                    if (all)
                        for (int64_t j = 0; j < channels; ++j) put<T, ADD>(target + place[j] * channels + j, value + j);
                    else
                        for (int64_t j = 0; j < channels; ++j)
                            if (place[j] >= first && place[j] < last)
                                put<T, ADD>(target + place[j] * channels + j, value + j);
                }
            }
            clear_until(last);
        }
    });
}

template <class T>
void any_scatter(int adds, const void* from, const int64_t* places, void* to, int64_t* outside, int64_t samples,
                 int64_t pixels, int64_t plane, int64_t channels) {
    const T* values = static_cast<const T*>(from);
    if (adds)
        scatter<T, true>(values, places, static_cast<T*>(to), outside, samples, pixels, plane, channels);
    else
        scatter<T, false>(values, places, static_cast<T*>(to), outside, samples, pixels, plane, channels);
}

// to[p, c] = from[places[p, c], c]
template <class T>
void gather(const void* from, const int64_t* places, void* to, int64_t* outside, int64_t samples, int64_t pixels,
            int64_t plane, int64_t channels) {
    std::atomic<bool> bad{false};
    parallel_for(samples * pixels, grain_for(channels * 2), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
            const int64_t* __restrict place = places + p * channels;
            const T* __restrict source = static_cast<const T*>(from) + p / pixels * plane * channels;
            T* __restrict target = static_cast<T*>(to) + p * channels;
            int64_t low = place[0], high = place[0];
            for (int64_t j = 1; j < channels; ++j) {
                low = std::min(low, place[j]);
                high = std::max(high, place[j]);
            }
            if (low < 0 || high >= plane) {
                bad.store(true, std::memory_order_relaxed);
                return;
            }
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < channels; ++j) target[j] = source[place[j] * channels + j];
        }
    });
    if (bad.load()) *outside = 1;
}

}  // namespace
}  // namespace nhwc

// Both set *outside where a place lies outside the plane (`plane` pixels); what they have written is then worth nothing.
NHWC_EXPORT(pool_scatter)(int dtype, int adds, const void* from, const int64_t* places, void* to, int64_t* outside,
                          int64_t samples, int64_t pixels, int64_t plane, int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::any_scatter, adds, from, places, to, outside, samples, pixels, plane, channels)
}

NHWC_EXPORT(pool_gather)(int dtype, const void* from, const int64_t* places, void* to, int64_t* outside, int64_t samples,
                         int64_t pixels, int64_t plane, int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::gather, from, places, to, outside, samples, pixels, plane, channels)
}
