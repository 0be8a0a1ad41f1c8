// Transposition of a matrix block by block, and of one with a few rows or columns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "blocks.h"
#include "vector.h"

namespace nhwc {

// A matrix to transpose: to (columns, rows) = from (rows, columns).
template <class T>
struct Matrix {
    const T* from;
    int64_t from_stride;
    T* to;
    int64_t to_stride;
    int64_t rows, columns;
};

// Block by block, ACROSS the columns of the source first or down its rows; each block fetches what lies `ahead` of it.
// Where the size is no multiple of a block, the last one overlaps the one before.
template <int LANES, bool STREAM, bool ACROSS, class T>
void transpose(const Matrix<T>& m, int64_t ahead) {
    if constexpr (LANES == 0) {
        for (int64_t c = 0; c < m.columns; ++c)
            for (int64_t r = 0; r < m.rows; ++r) m.to[c * m.to_stride + r] = m.from[r * m.from_stride + c];
    } else {
        constexpr int64_t R = BLOCK_ROWS<sizeof(T), LANES>, C = BLOCK_COLUMNS<sizeof(T), LANES>;
        if (m.rows < R || m.columns < C) return transpose<LANES / 2, STREAM, ACROSS>(m, ahead);
        const auto one = [&](int64_t r, int64_t c) {
            const T* from = m.from + std::min(r, m.rows - R) * m.from_stride + std::min(c, m.columns - C);
            if (ahead != 0)
                for (int64_t k = 0; k < R; ++k) __builtin_prefetch(from + k * m.from_stride + ahead);
            block<LANES, STREAM>(from, m.from_stride,
                                 m.to + std::min(c, m.columns - C) * m.to_stride + std::min(r, m.rows - R),
                                 m.to_stride);
        };
        if constexpr (ACROSS) {
            for (int64_t r = 0; r < m.rows; r += R)
                for (int64_t c = 0; c < m.columns; c += C) one(r, c);
        } else {
            for (int64_t c = 0; c < m.columns; c += C)
                for (int64_t r = 0; r < m.rows; r += R) one(r, c);
        }
    }
}

// Few channels (images): a fixed number lets the compiler interleave whole vectors.
template <class T, int CHANNELS>
void join_few(const T* __restrict from, int64_t plane, T* __restrict to, int64_t pixels) {
    NHWC_INDEPENDENT
    for (int64_t p = 0; p < pixels; ++p)
        for (int c = 0; c < CHANNELS; ++c) to[p * CHANNELS + c] = from[c * plane + p];
}
template <class T, int CHANNELS>
void split_few(const T* __restrict from, T* __restrict to, int64_t plane, int64_t pixels) {
    NHWC_INDEPENDENT
    for (int64_t p = 0; p < pixels; ++p)
        for (int c = 0; c < CHANNELS; ++c) to[c * plane + p] = from[p * CHANNELS + c];
}

}  // namespace nhwc
