// Winograd's transforms of a 3x3 convolution, one vector of channels at a time: F(2x2, 3x3) and F(4x4, 3x3).
//
// y = A^T [(G g G^T) * (B^T d B)] A. With the points p_i and infinity, row i of B^T holds the coefficients of
// prod_{j != i} (x - p_j), that of infinity those of prod_j (x - p_j); A^T has the powers of the points; G, which
// nhwc/inference/steps/winograd.py applies in float64, has the rest.
#pragma once

#include "conv.h"
#include "simd.h"

namespace nhwc {
namespace engine {
namespace winograd {

// Points 0, 1, -1.
struct F2 {
    static constexpr int M = 2, N = 4;
    static void forward(const vf (&d)[N], vf (&v)[N]) {
        v[0] = d[0] - d[2];
        v[1] = d[1] + d[2];
        v[2] = d[2] - d[1];
        v[3] = d[3] - d[1];
    }
    static void inverse(const vf (&m)[N], vf (&y)[M]) {
        y[0] = m[0] + m[1] + m[2];
        y[1] = (m[1] - m[2]) + m[3];
    }
};

// Points 0, a, -a, b, -b: pairs share their even and odd halves, and these have less error than 0, 1, -1, 2, -2; all
// constants are exact in float32. What was measured stands in winograd.py.
struct F4 {
    static constexpr int M = 4, N = 6;
    static constexpr float A = 0.6875f, B = 1.5f, A2 = A * A, B2 = B * B, A3 = A2 * A, B3 = B2 * B;
    static constexpr float SUM = A2 + B2, PRODUCT = A2 * B2;
    static void forward(const vf (&d)[N], vf (&v)[N]) {
        v[0] = (d[4] - d[2] * SUM) + d[0] * PRODUCT;
        const vf even_a = d[4] - d[2] * B2, odd_a = d[3] - d[1] * B2;
        v[1] = even_a + odd_a * A;
        v[2] = even_a - odd_a * A;
        const vf even_b = d[4] - d[2] * A2, odd_b = d[3] - d[1] * A2;
        v[3] = even_b + odd_b * B;
        v[4] = even_b - odd_b * B;
        v[5] = (d[5] - d[3] * SUM) + d[1] * PRODUCT;
    }
    static void inverse(const vf (&m)[N], vf (&y)[M]) {
        const vf sum_a = m[1] + m[2], sum_b = m[3] + m[4];
        const vf difference_a = m[1] - m[2], difference_b = m[3] - m[4];
        y[0] = m[0] + (sum_a + sum_b);
        y[1] = difference_a * A + difference_b * B;
        y[2] = sum_a * A2 + sum_b * B2;
        y[3] = (difference_a * A3 + difference_b * B3) + m[5];
    }
};

// Rows and columns of a tile that lie within the picture, [from, to).
struct Inside {
    int row_from, row_to, column_from, column_to;
    bool holds(int row, int column) const {
        return row >= row_from && row < row_to && column >= column_from && column < column_to;
    }
};

// One tile's input to its N N points, `step` floats apart. x: the tile's first pixel, which may lie outside.
template <class F, bool EDGE, bool PART>
inline void forward(const float* x, int64_t sh, int64_t sw, const Inside& inside, float* v, int64_t step,
                    int64_t part) {
    constexpr int N = F::N;
    vf half[N][N];
#pragma GCC unroll 6
    for (int j = 0; j < N; ++j) {
        vf d[N], column[N];
#pragma GCC unroll 6
        for (int i = 0; i < N; ++i) {
            const float* from = x + i * sh + j * sw;
            d[i] = vf{};
            if (!EDGE || inside.holds(i, j)) d[i] = PART ? load_part(from, part) : load(from);
        }
        F::forward(d, column);
#pragma GCC unroll 6
        for (int i = 0; i < N; ++i) half[i][j] = column[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < N; ++i) {
        vf row[N];
        F::forward(half[i], row);
#pragma GCC unroll 6
        for (int j = 0; j < N; ++j) store(v + (i * N + j) * step, row[j]);
    }
}

// The N N points of one tile, `step` floats apart, to its M M sums.
template <class F>
inline void inverse(const float* m, int64_t step, vf (&sums)[F::M][F::M]) {
    constexpr int M = F::M, N = F::N;
    vf half[M][N];
#pragma GCC unroll 6
    for (int j = 0; j < N; ++j) {
        vf points[N], column[M];
#pragma GCC unroll 6
        for (int i = 0; i < N; ++i) points[i] = load(m + (i * N + j) * step);
        F::inverse(points, column);
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) half[i][j] = column[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) F::inverse(half[i], sums[i]);
}

}  // namespace winograd
}  // namespace engine
}  // namespace nhwc
