// Layer norm over the densest dimension: two passes over a row in the cache for its moments, one to write.
#include <cmath>

#include "across.h"
#include "arithmetic.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int64_t FLOATS_PER_TASK = 1 << 13;
constexpr int SUMS = 4;

struct LayerNorm {
    Rows x, y;
    Ref weight, bias;  // base < 0: none
    double eps;
};

// The sums of x - about and of its squares, in several partial sums.
template <bool SQUARES>
void sums(const float* x, int64_t count, float about, float& sum, float& squares) {
    vf one[SUMS]{}, two[SUMS]{};
    const auto take = [&](int k, vf d) {
        one[k] += d;
        if (SQUARES) two[k] += d * d;
    };
    int64_t j = 0;
    for (; j + SUMS * LANES <= count; j += SUMS * LANES)
#pragma GCC unroll 4
        for (int k = 0; k < SUMS; ++k) take(k, load(x + j + k * LANES) - about);
    for (; j + LANES <= count; j += LANES) take(0, load(x + j) - about);
    if (j < count) take(1, only(load_part(x + j, count - j) - about, count - j, 0.0f));
    sum = sum_of((one[0] + one[1]) + (one[2] + one[3]));
    if (SQUARES) squares = sum_of((two[0] + two[1]) + (two[2] + two[3]));
}

template <bool AFFINE>
void write(const float* x, float* y, int64_t count, float mean, float scale, float more, const float* weight,
           const float* bias) {
    for_vectors(count, [&](const auto& get, const auto& put) {
        const vf value = (get(x) - mean) * scale + more;
        if constexpr (AFFINE)
            put(y, value * (weight == nullptr ? splat(1.0f) : get(weight)) + (bias == nullptr ? vf{} : get(bias)));
        else
            put(y, value);
    });
}

}  // namespace

NHWC_STEP(norm_layer, LayerNorm) {
    const LayerNorm& p = parameters;
    const float* weight = p.weight.base < 0 ? nullptr : at(context, p.weight);
    const float* bias = p.bias.base < 0 ? nullptr : at(context, p.bias);
    const int64_t count = p.y.c;
    const double size = static_cast<double>(count);
    for_each_row(context, p.x, p.y, FLOATS_PER_TASK, [&](const float* x, float* y) {
        float sum, off, squares;
        sums<false>(x, count, x[0], sum, squares);
        const float mean = x[0] + sum / static_cast<float>(count);
        // what the mean was off by is taken out of the squares again
        sums<true>(x, count, mean, off, squares);
        const double shift = off / size, variance = squares / size - shift * shift;
        const float scale = static_cast<float>(1.0 / std::sqrt((variance < 0.0 ? 0.0 : variance) + p.eps));
        const float more = static_cast<float>(-shift * scale);
        if (weight != nullptr || bias != nullptr)
            write<true>(x, y, count, mean, scale, more, weight, bias);
        else
            write<false>(x, y, count, mean, scale, more, weight, bias);
    });
}

}  // namespace engine
}  // namespace nhwc
