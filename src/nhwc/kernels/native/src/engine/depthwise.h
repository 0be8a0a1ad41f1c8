// A depthwise convolution in registers: P neighbouring pixels of R output rows by one vector of channels.
//
// Weights lie in blocks of PACK channels: [channels / PACK][taps][PACK], the last block filled up with zeros, whatever
// the instruction set, so that the taps of one vector are neighbours. Taps outside the picture are left out, not
// multiplied by zeros: at 7x7 pixels with a 7x7 kernel that is nearly half of all.
#pragma once

#include "conv.h"
#include "simd.h"

namespace nhwc {
namespace engine {
namespace depthwise {

constexpr int64_t PACK = 16;

inline const float* packed(const float* weight, int64_t taps, int64_t channel) {
    return weight + channel / PACK * (taps * PACK) + channel % PACK;
}

// Which part of a block's window of input pixels lies within the picture: rows and columns [from, to).
struct Window {
    int64_t row_from, row_to, column_from, column_to;
};

// Adds what the input row under kernel row `first` of output row 0, and under kernel row first - S of output row 1,
// brings to both. p: its pixel at the window's first column, which may lie outside.
template <int K, int S, int P, bool EDGE, bool PART, bool FIRST, bool SECOND>
inline __attribute__((always_inline)) void add_row(vf (&first_row)[P], vf (&second_row)[P], const float* p, int64_t sw,
                                                   const float* first, const float* second, const Window& window,
                                                   int64_t part) {
    vf a[K], b[K];
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
        if constexpr (FIRST) a[k] = load(first + k * PACK);
        if constexpr (SECOND) b[k] = load(second + k * PACK);
    }
#pragma GCC unroll 32
    for (int column = 0; column < (P - 1) * S + K; ++column) {
        if (!EDGE || (column >= window.column_from && column < window.column_to)) {
            const vf v = PART ? load_part(p, part) : load(p);
#pragma GCC unroll 8
            for (int k = 0; k < K; ++k) {
                if (column < k || (column - k) % S != 0 || (column - k) / S >= P) continue;
                if constexpr (FIRST) first_row[(column - k) / S] += v * a[k];
                if constexpr (SECOND) second_row[(column - k) / S] += v * b[k];
            }
        }
        p += sw;
    }
}

// x: the pixel at the window's first row and column. R = 2 is for S = 1 only.
template <int K, int S, int P, int R, bool EDGE, bool PART>
inline __attribute__((always_inline)) void add_window(vf (&sums)[R][P], const float* x, int64_t sh, int64_t sw,
                                                      const float* weight, const Window& window, int64_t part) {
    static_assert(R == 1 || (R == 2 && S == 1), "rows share their input only without a stride");
    vf(&one)[P] = sums[0];
    vf(&other)[P] = sums[R - 1];
    constexpr int64_t step = K * PACK;
    if constexpr (R == 1) {
        for (int64_t i = window.row_from; i < window.row_to; ++i)
            add_row<K, S, P, EDGE, PART, true, false>(one, other, x + i * sh, sw, weight + i * step, nullptr, window,
                                                      part);
    } else {
        if (window.row_from == 0)
            add_row<K, S, P, EDGE, PART, true, false>(one, other, x, sw, weight, nullptr, window, part);
        const int64_t to = window.row_to < K ? window.row_to : K;
        for (int64_t i = window.row_from > 1 ? window.row_from : 1; i < to; ++i)
            add_row<K, S, P, EDGE, PART, true, true>(one, other, x + i * sh, sw, weight + i * step,
                                                     weight + (i - 1) * step, window, part);
        if (window.row_to > K)
            add_row<K, S, P, EDGE, PART, false, true>(one, other, x + K * sh, sw, nullptr, weight + (K - 1) * step,
                                                      window, part);
    }
}

// What lies behind the sums: where they go and what is added to them.
struct Target {
    float* y;
    int64_t sh, sw;
    const float* addend;  // null: none
    int64_t addend_sh, addend_sw;
    Bounds bounds;
    bool addend_last;
};

template <int P, int R, bool EDGE, bool PART>
inline __attribute__((always_inline)) void finish(const vf (&sums)[R][P], const Target& target, int64_t channel,
                                                  int64_t pixels, int64_t part) {
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) {
            if (EDGE && p >= pixels) continue;
            vf v = sums[r][p];
            if (target.addend == nullptr) {
                v = bounded(v, target.bounds);
            } else {
                const float* from = target.addend + r * target.addend_sh + p * target.addend_sw + channel;
                const vf more = PART ? load_part(from, part) : load(from);
                v = target.addend_last ? bounded(v, target.bounds) + more : bounded(v + more, target.bounds);
            }
            float* to = target.y + r * target.sh + p * target.sw + channel;
            if (PART)
                store_part(to, v, part);
            else
                store(to, v);
        }
}

}  // namespace depthwise
}  // namespace engine
}  // namespace nhwc
