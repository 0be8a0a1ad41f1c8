// Conversion between the formats: per sample the transposition of a (channels, pixels) matrix, for any element of 1 to
// 8 bytes.
#include <algorithm>
#include <cstdint>

#include "export.h"
#include "parallel.h"
#include "tile.h"
#include "vector.h"

namespace nhwc {
namespace {

// Elements of a task: the tiles of a strip of pixels, all channels of it.
constexpr int64_t STRIP = 64;

// Few channels (images): a fixed number lets the compiler interleave whole vectors.
template <class T, int CHANNELS>
void join_few(const T* __restrict from, int64_t plane, T* __restrict to, int64_t pixels) {
    for (int64_t p = 0; p < pixels; ++p)
        for (int c = 0; c < CHANNELS; ++c) to[p * CHANNELS + c] = from[c * plane + p];
}
template <class T, int CHANNELS>
void split_few(const T* __restrict from, T* __restrict to, int64_t plane, int64_t pixels) {
    for (int c = 0; c < CHANNELS; ++c)
        for (int64_t p = 0; p < pixels; ++p) to[c * plane + p] = from[p * CHANNELS + c];
}

template <class T>
void to_rows(const void* source, void* target, int64_t samples, int64_t channels, int64_t pixels, int64_t step) {
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    const int64_t strips = (pixels + STRIP - 1) / STRIP;
    parallel_for(samples * strips, grain_for(STRIP * channels), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / strips, first = (task % strips) * STRIP;
            const int64_t count = std::min(STRIP, pixels - first);
            const T* in = from + sample * channels * pixels + first;
            T* out = to + (sample * pixels + first) * step;
            switch (channels == step ? channels : 0) {
                case 1:
                    std::copy(in, in + count, out);
                    break;
                case 2:
                    join_few<T, 2>(in, pixels, out, count);
                    break;
                case 3:
                    join_few<T, 3>(in, pixels, out, count);
                    break;
                case 4:
                    join_few<T, 4>(in, pixels, out, count);
                    break;
                default:
                    tile(in, pixels, out, step, channels, count);
            }
        }
    });
}

template <class T>
void from_rows(const void* source, void* target, int64_t samples, int64_t channels, int64_t pixels) {
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    const int64_t strips = (pixels + STRIP - 1) / STRIP;
    parallel_for(samples * strips, grain_for(STRIP * channels), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / strips, first = (task % strips) * STRIP;
            const int64_t count = std::min(STRIP, pixels - first);
            const T* in = from + sample * channels * pixels + first * channels;
            T* out = to + sample * channels * pixels + first;
            switch (channels) {
                case 1:
                    std::copy(in, in + count, out);
                    break;
                case 2:
                    split_few<T, 2>(in, out, pixels, count);
                    break;
                case 3:
                    split_few<T, 3>(in, out, pixels, count);
                    break;
                case 4:
                    split_few<T, 4>(in, out, pixels, count);
                    break;
                default:
                    tile(in, channels, out, pixels, count, channels);
            }
        }
    });
}

}  // namespace
}  // namespace nhwc

// (samples, channels, pixels) to (samples, pixels, channels), elements of `bytes` bytes; pixels of the target lie
// `step` elements apart, so that it may be some channels of a wider tensor.
NHWC_EXPORT(to_rows)(int bytes, const void* from, void* to, int64_t samples, int64_t channels, int64_t pixels,
                     int64_t step){NHWC_FOR_BYTES(bytes, nhwc::to_rows, from, to, samples, channels, pixels, step)}

// (samples, pixels, channels) to (samples, channels, pixels).
NHWC_EXPORT(from_rows)(int bytes, const void* from, void* to, int64_t samples, int64_t channels, int64_t pixels) {
    NHWC_FOR_BYTES(bytes, nhwc::from_rows, from, to, samples, channels, pixels)
}
