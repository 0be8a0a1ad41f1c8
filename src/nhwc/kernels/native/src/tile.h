// Transposition of small matrices: between a strip of pixels in rows of channels, and channels in rows of pixels.
#pragma once

#include <algorithm>
#include <cstdint>

namespace nhwc {

// A tile of 16 x 16 reads and writes whole cache lines of four-byte elements.
constexpr int64_t SIDE = 16;

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

// to (columns, rows) = from (rows, columns) transposed; T is an unsigned integer.
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

}  // namespace nhwc
