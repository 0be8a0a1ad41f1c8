// Conversion between the formats: per sample the transposition of a (channels, pixels) matrix, for any element of 1 to 8 bytes.
#include <algorithm>
#include <cstdint>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// A tile of 16 x 16 reads and writes whole cache lines of four-byte elements.
constexpr int64_t SIDE = 16;
// Elements of a task: the tiles of a strip of pixels, all channels of it.
constexpr int64_t STRIP = 64;

template <class T>
struct eight {
    typedef T type __attribute__((vector_size(8 * sizeof(T))));
};
template <class T>
using vector8 = typename eight<T>::type;

template <class T>
inline vector8<T> load8(const T* from) {
    vector8<T> value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

// An 8 x 8 block in registers: three perfect shuffles of the rows transpose it.
template <class T>
inline void block8(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
    vector8<T> a[8], b[8];
    for (int r = 0; r < 8; ++r) a[r] = load8(from + r * from_stride);
    for (int stage = 0; stage < 3; ++stage) {
        for (int r = 0; r < 4; ++r) {
            b[2 * r] = __builtin_shufflevector(a[r], a[r + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            b[2 * r + 1] = __builtin_shufflevector(a[r], a[r + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        for (int r = 0; r < 8; ++r) a[r] = b[r];
    }
    for (int r = 0; r < 8; ++r) __builtin_memcpy(to + r * to_stride, &a[r], sizeof a[r]);
}

template <class T>
inline void any_block(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
    for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = 0; r < rows; ++r) to[c * to_stride + r] = from[r * from_stride + c];
}

// to (columns, rows) = from (rows, columns) transposed.
template <class T>
void tile(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
    for (int64_t c0 = 0; c0 < columns; c0 += SIDE)
        for (int64_t r0 = 0; r0 < rows; r0 += SIDE) {
            const int64_t height = std::min(SIDE, rows - r0), width = std::min(SIDE, columns - c0);
            for (int64_t c = c0; c < c0 + width; c += 8)
                for (int64_t r = r0; r < r0 + height; r += 8) {
                    const T* source = from + r * from_stride + c;
                    T* target = to + c * to_stride + r;
                    const int64_t high = std::min<int64_t>(8, rows - r), wide = std::min<int64_t>(8, columns - c);
                    if (high == 8 && wide == 8)
                        block8(source, from_stride, target, to_stride);
                    else
                        any_block(source, from_stride, target, to_stride, high, wide);
                }
        }
}

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
                case 1: std::copy(in, in + count, out); break;
                case 2: join_few<T, 2>(in, pixels, out, count); break;
                case 3: join_few<T, 3>(in, pixels, out, count); break;
                case 4: join_few<T, 4>(in, pixels, out, count); break;
                default: tile(in, pixels, out, step, channels, count);
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
                case 1: std::copy(in, in + count, out); break;
                case 2: split_few<T, 2>(in, out, pixels, count); break;
                case 3: split_few<T, 3>(in, out, pixels, count); break;
                case 4: split_few<T, 4>(in, out, pixels, count); break;
                default: tile(in, channels, out, pixels, count, channels);
            }
        }
    });
}

}  // namespace
}  // namespace nhwc

// (samples, channels, pixels) to (samples, pixels, channels), elements of `bytes` bytes; pixels of the target lie `step`
// elements apart, so that it may be some channels of a wider tensor.
NHWC_EXPORT(to_rows)(int bytes, const void* from, void* to, int64_t samples, int64_t channels, int64_t pixels, int64_t step) {
    NHWC_FOR_BYTES(bytes, nhwc::to_rows, from, to, samples, channels, pixels, step)
}

// (samples, pixels, channels) to (samples, channels, pixels).
NHWC_EXPORT(from_rows)(int bytes, const void* from, void* to, int64_t samples, int64_t channels, int64_t pixels) {
    NHWC_FOR_BYTES(bytes, nhwc::from_rows, from, to, samples, channels, pixels)
}
