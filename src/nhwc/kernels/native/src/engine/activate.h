// Activations on vectors, and on finished rows while they lie in the cache.
#pragma once

#include <utility>

#include "epilogue.h"
#include "functions.h"

namespace nhwc {
namespace engine {

// KIND of one vector. lo, hi as Epilogue has them; slope: of PRELU, one per lane. NaN stays NaN, infinities give what
// torch gives.
template <int64_t KIND>
inline vf activated(vf x, float lo, float hi, vf slope) {
    (void)lo, (void)hi, (void)slope;
    if constexpr (KIND == CLAMP) return at_most(at_least(x, splat(lo)), splat(hi));
    if constexpr (KIND == LEAKY_RELU) return x > 0.0f ? x : x * lo;
    if constexpr (KIND == PRELU) return x > 0.0f ? x : x * slope;
    if constexpr (KIND == SILU) return x / (exponential_normal(-x) + 1.0f);
    if constexpr (KIND == HARDSWISH) return x * (at_most(at_least(x + 3.0f, splat(0.0f)), splat(6.0f)) * (1.0f / 6.0f));
    if constexpr (KIND == HARDSIGMOID) return at_most(at_least(x + 3.0f, splat(0.0f)), splat(6.0f)) * (1.0f / 6.0f);
    if constexpr (KIND == SIGMOID) return sigmoid(x);
    if constexpr (KIND == GELU) {
        const vf half = x * 0.5f;
        return half * erf_of(x * 0.70710678f) + half;
    }
    if constexpr (KIND == GELU_TANH) {
        // (1 + tanh u) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
        const vf twice = x * (x * x * 0.0713548163f + 1.59576912f);
        return x / (exponential_normal(-twice) + 1.0f);
    }
    if constexpr (KIND == TANH) return tanh_of(x);
    if constexpr (KIND == ELU) return x > 0.0f ? x : exponential_minus_one(x) * lo;
    if constexpr (KIND == MISH) {
        // tanh(ln(1 + w)) = (w² + 2 w) / (w² + 2 w + 2), w = e^x: one from x = 20 on
        const vf w = exponential_normal(at_most(x, splat(20.0f))), n = w * (w + 2.0f);
        return x * (n / (n + 2.0f));
    }
    if constexpr (KIND == SOFTPLUS) {
        const vf scaled = x * lo;
        const vf soft = at_least(scaled, splat(0.0f)) + logarithm_one_plus(exponential_normal(-magnitude(scaled)));
        return scaled > hi ? x : soft / lo;
    }
    return x;
}

// An activation as a constant, so that a loop is compiled for each.
template <int64_t KIND>
struct Known {
    static constexpr int64_t kind = KIND;
};

template <class Body, int64_t... KINDS>
inline void with_activation(int64_t activation, const Body& body, std::integer_sequence<int64_t, KINDS...>) {
    (void)((activation == KINDS && (body(Known<KINDS>{}), true)) || ...);
}

// body(Known<the activation>).
template <class Body>
inline void with_activation(int64_t activation, const Body& body) {
    with_activation(activation, body, std::make_integer_sequence<int64_t, SOFTPLUS + 1>{});
}

// The same for an activation that is known at run time only.
inline vf activated(Activation activation, vf x, float lo, float hi, vf slope) {
    vf result = x;
    with_activation(activation, [&](auto known) { result = activated<decltype(known)::kind>(x, lo, hi, slope); });
    return result;
}

// count floats from `from`, activated, to `to`, which may be the same; slope: null, or their slopes.
template <int64_t KIND>
inline void activate_to(const float* from, float* to, int64_t count, float lo, float hi, const float* slope) {
    constexpr bool sloped = KIND == PRELU;
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        store(to + j, activated<KIND>(load(from + j), lo, hi, sloped ? load(slope + j) : vf{}));
    if (const int64_t rest = count - j)
        store_part(to + j,
                   activated<KIND>(load_part(from + j, rest), lo, hi, sloped ? load_part(slope + j, rest) : vf{}),
                   rest);
}

// The epilogue's activation, in place, on `count` floats that are channels first_channel.. of one pixel; without PRELU
// they may be any. Addends are not added here.
inline void activate(const Epilogue& epilogue, const Context& context, float* row, int64_t count,
                     int64_t first_channel) {
    if (epilogue.activation == NONE) return;
    const float* slope = epilogue.activation == PRELU ? at(context, epilogue.slope) + first_channel : nullptr;
    with_activation(epilogue.activation, [&](auto known) {
        activate_to<decltype(known)::kind>(row, row, count, static_cast<float>(epilogue.lo),
                                           static_cast<float>(epilogue.hi), slope);
    });
}

}  // namespace engine
}  // namespace nhwc
