// Softmax and its logarithm over the densest dimension.
#include <cmath>

#include "across.h"
#include "arithmetic.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int64_t FLOATS_PER_TASK = 1 << 13;
constexpr float NONE_AT_ALL = -std::numeric_limits<float>::infinity();

struct Softmax {
    Rows x, y;
    int64_t is_log;
};

// A NaN may be passed over: the exponentials have it again.
float greatest(const float* x, int64_t count) {
    vf best[2] = {splat(NONE_AT_ALL), splat(NONE_AT_ALL)};
    int64_t j = 0;
    for (; j + 2 * LANES <= count; j += 2 * LANES)
        for (int k = 0; k < 2; ++k) best[k] = at_least(best[k], load(x + j + k * LANES));
    for (; j + LANES <= count; j += LANES) best[0] = at_least(best[0], load(x + j));
    if (j < count) best[1] = at_least(best[1], only(load_part(x + j, count - j), count - j, NONE_AT_ALL));
    return greatest_of(at_least(best[0], best[1]));
}

// The sum of e^(x - most); KEPT: each of them goes to y.
template <bool KEPT>
float exponentials(const float* x, float most, int64_t count, float* y) {
    vf sum[2]{};
    int64_t j = 0;
    for (; j + 2 * LANES <= count; j += 2 * LANES)
        for (int k = 0; k < 2; ++k) {
            const vf e = exponential_normal(load(x + j + k * LANES) - most);
            if (KEPT) store(y + j + k * LANES, e);
            sum[k] += e;
        }
    for (; j < count; j += LANES) {
        const int64_t rest = std::min<int64_t>(count - j, LANES);
        const bool whole = rest == LANES;
        const vf e = exponential_normal((whole ? load(x + j) : load_part(x + j, rest)) - most);
        if (KEPT && whole) store(y + j, e);
        if (KEPT && !whole) store_part(y + j, e, rest);
        sum[1] += whole ? e : only(e, rest, 0.0f);
    }
    return sum_of(sum[0] + sum[1]);
}

}  // namespace

NHWC_STEP(softmax, Softmax) {
    const int64_t count = parameters.y.c;
    for_each_row(context, parameters.x, parameters.y, FLOATS_PER_TASK, [&](const float* x, float* y) {
        const float most = greatest(x, count);
        if (parameters.is_log) {
            const float logarithm = std::log(exponentials<false>(x, most, count, nullptr));
            for_vectors(count, [&](const auto& get, const auto& put) { put(y, (get(x) - most) - logarithm); });
        } else {
            const float scale = 1.0f / exponentials<true>(x, most, count, y);
            for_vectors(count, [&](const auto& get, const auto& put) { put(y, get(y) * scale); });
        }
    });
}

}  // namespace engine
}  // namespace nhwc
