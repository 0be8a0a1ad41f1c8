// Transposition of small blocks in registers, for elements of 1, 2, 4 and 8 bytes.
//
// A vector is LANES lanes of 16 bytes: four in AVX-512, two in AVX2, else one. Elements narrower than four bytes are first
// packed from several rows into one of four, so that every block ends in stores of whole vectors.
#pragma once

#include <cstdint>
#include <cstring>

#include "stream.h"
#include "vector.h"

namespace nhwc {

// Within each lane, the low or the high halves of two vectors in turn, by 4 and by 8 bytes.
inline u32x4 low4(u32x4 a, u32x4 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline u32x4 high4(u32x4 a, u32x4 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline u32x4 low8(u32x4 a, u32x4 b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
inline u32x4 high8(u32x4 a, u32x4 b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }

inline u32x8 low4(u32x8 a, u32x8 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13); }
inline u32x8 high4(u32x8 a, u32x8 b) { return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15); }
inline u32x8 low8(u32x8 a, u32x8 b) { return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13); }
inline u32x8 high8(u32x8 a, u32x8 b) { return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15); }

inline u32x16 low4(u32x16 a, u32x16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
inline u32x16 high4(u32x16 a, u32x16 b) {
    return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
inline u32x16 low8(u32x16 a, u32x16 b) {
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
inline u32x16 high8(u32x16 a, u32x16 b) {
    return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}

// LANES vectors `step` apart, seen as a square matrix of lanes, transposed.
template <int STEP>
inline void turn_lanes(u32x4*) {}
template <int STEP>
inline void turn_lanes(u32x8* v) {
    const u32x8 a = v[0], b = v[STEP];
    v[0] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    v[STEP] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
template <int STEP>
inline void turn_lanes(u32x16* v) {
    const auto low = [](u32x16 a, u32x16 b) {
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    };
    const auto high = [](u32x16 a, u32x16 b) {
        return __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    };
    const auto even = [](u32x16 a, u32x16 b) {
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    };
    const auto odd = [](u32x16 a, u32x16 b) {
        return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    };
    const u32x16 a = low(v[0], v[STEP]), b = low(v[2 * STEP], v[3 * STEP]);
    const u32x16 c = high(v[0], v[STEP]), d = high(v[2 * STEP], v[3 * STEP]);
    v[0] = even(a, b);
    v[STEP] = odd(a, b);
    v[2 * STEP] = even(c, d);
    v[3 * STEP] = odd(c, d);
}

// The rows and columns of a block of elements of `BYTES` bytes.
template <int BYTES, int LANES>
constexpr int64_t BLOCK_ROWS = 16 * LANES / BYTES;
template <int BYTES, int LANES>
constexpr int64_t BLOCK_COLUMNS = BYTES == 8 ? 2 * LANES : 4 * LANES;

// A vector of four-byte elements from 4 / sizeof(T) rows of one of them each; of eight bytes, one row as it is.
template <int LANES, class T>
inline typename vector_of<LANES>::type packed(const T* from, int64_t stride) {
    using V = typename vector_of<LANES>::type;
    if constexpr (sizeof(T) >= 4) {
        V value;
        std::memcpy(&value, from, sizeof value);
        return value;
    } else {
        typedef T narrow __attribute__((vector_size(4 * LANES * sizeof(T))));
        V value{};
        for (unsigned part = 0; part < 4 / sizeof(T); ++part) {
            narrow row;
            std::memcpy(&row, from + part * stride, sizeof row);
            value |= __builtin_convertvector(row, V) << (8 * sizeof(T) * part);
        }
        return value;
    }
}

// to (columns, rows) = from (rows, columns) transposed, for a block of BLOCK_ROWS and BLOCK_COLUMNS.
template <int LANES, bool STREAM, class T>
inline void block(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
    using V = typename vector_of<LANES>::type;
    constexpr int64_t SIDE = BLOCK_COLUMNS<sizeof(T), LANES>;
    constexpr int64_t ROWS = BLOCK_ROWS<sizeof(T), LANES> / SIDE;  // to a vector
    V a[SIDE], b[SIDE];
    for (int64_t r = 0; r < SIDE; ++r) a[r] = packed<LANES>(from + r * ROWS * from_stride, from_stride);
    if constexpr (sizeof(T) == 8) {
        for (int64_t r = 0; r < SIDE; r += 2) {
            b[r] = low8(a[r], a[r + 1]);
            b[r + 1] = high8(a[r], a[r + 1]);
        }
        turn_lanes<2>(b);
        turn_lanes<2>(b + 1);
    } else {
        for (int64_t r = 0; r < SIDE; r += 4) {
            const V c = low4(a[r], a[r + 1]), d = high4(a[r], a[r + 1]);
            const V e = low4(a[r + 2], a[r + 3]), f = high4(a[r + 2], a[r + 3]);
            b[r] = low8(c, e);
            b[r + 1] = high8(c, e);
            b[r + 2] = low8(d, f);
            b[r + 3] = high8(d, f);
        }
        turn_lanes<4>(b);
        turn_lanes<4>(b + 1);
        turn_lanes<4>(b + 2);
        turn_lanes<4>(b + 3);
    }
    for (int64_t c = 0; c < SIDE; ++c) put<STREAM>(to + c * to_stride, b[c]);
}

}  // namespace nhwc
