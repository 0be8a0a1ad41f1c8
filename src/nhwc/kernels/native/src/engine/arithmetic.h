// What one instruction of an elementwise chain does to a block of floats in the cache.
#pragma once

#include <algorithm>
#include <cmath>

#include "activate.h"
#include "lanes.h"

namespace nhwc {
namespace engine {

// The codes by which Python names instructions; see nhwc/inference/steps/elementwise.py.
enum Kind : int64_t {
    COPY = 0,
    ADD = 1,
    SUBTRACT = 2,
    MULTIPLY = 3,
    DIVIDE = 4,
    MAXIMUM = 5,
    MINIMUM = 6,
    MULTIPLY_ADD = 7,  // a b + c
    ACTIVATE = 8,      // b: the slopes of PRELU
    POWER = 9,         // lo: the exponent
    EXP = 10,
    LOG = 11,
    SQRT = 12,
    RSQRT = 13,
    ABS = 14,
    NEGATE = 15,
    RECIPROCAL = 16,
    ERF = 17,
    FILL = 18,  // lo: the value
};

// to = bounded(kind(a, b, c)). Operands name inputs, then registers; `to` < 0 is the result. is_bounded: lo and hi are
// the clamp that follows. is_invariant: alike for all rows of a picture, so that it is done once for them.
struct Instruction {
    int64_t kind, a, b, c, to, activation, is_bounded, is_invariant;
    double lo, hi;
};

// The operation over whole vectors, and a last one in part.
template <class F>
inline void for_vectors(int64_t count, const F& f) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        f([j](const float* from) { return load(from + j); }, [j](float* to, vf value) { store(to + j, value); });
    if (const int64_t rest = count - j)
        f([j, rest](const float* from) { return load_part(from + j, rest); },
          [j, rest](float* to, vf value) { store_part(to + j, value, rest); });
}

template <int64_t KIND>
inline vf combined(vf a, vf b, vf c) {
    if constexpr (KIND == ADD) return a + b;
    if constexpr (KIND == SUBTRACT) return a - b;
    if constexpr (KIND == MULTIPLY) return a * b;
    if constexpr (KIND == DIVIDE) return a / b;
    if constexpr (KIND == MAXIMUM) return greater_of(a, b);
    if constexpr (KIND == MINIMUM) return less_of(a, b);
    if constexpr (KIND == MULTIPLY_ADD) return a * b + c;
    return a;
}

struct Operands {
    const float *a, *b, *c;
    float* to;
    int64_t count;
};

template <int64_t KIND, bool BOUNDED>
inline void combine(const Operands& o, vf lo, vf hi) {
    for_vectors(o.count, [&](const auto& get, const auto& put) {
        const vf value = combined<KIND>(get(o.a), get(o.b), KIND == MULTIPLY_ADD ? get(o.c) : vf{});
        put(o.to, BOUNDED ? at_most(at_least(value, lo), hi) : value);
    });
}

template <int64_t KIND>
inline void combine(const Operands& o, const Instruction& each) {
    const vf lo = splat(static_cast<float>(each.lo)), hi = splat(static_cast<float>(each.hi));
    each.is_bounded ? combine<KIND, true>(o, lo, hi) : combine<KIND, false>(o, lo, hi);
}

template <class F>
inline void map(const Operands& o, const F& f) {
    for_vectors(o.count, [&](const auto& get, const auto& put) { put(o.to, f(get(o.a))); });
}

// For what has no vector type of its own: the compiler finds the instruction, or calls the C library.
template <class F>
inline void map_each(const Operands& o, const F& f) {
    for (int64_t j = 0; j < o.count; ++j) o.to[j] = f(o.a[j]);
}

inline void raise(const Operands& o, float exponent) {
    if (exponent == 2.0f) return map(o, [](vf x) { return x * x; });
    if (exponent == 3.0f) return map(o, [](vf x) { return x * x * x; });
    if (exponent == 1.0f) return map(o, [](vf x) { return x; });
    if (exponent == -1.0f) return map(o, [](vf x) { return 1.0f / x; });
    map_each(o, [exponent](float x) { return std::pow(x, exponent); });
}

inline void execute(const Instruction& each, const Operands& o) {
    switch (each.kind) {
        case COPY:
            return map(o, [](vf x) { return x; });
        case ADD:
            return combine<ADD>(o, each);
        case SUBTRACT:
            return combine<SUBTRACT>(o, each);
        case MULTIPLY:
            return combine<MULTIPLY>(o, each);
        case DIVIDE:
            return combine<DIVIDE>(o, each);
        case MAXIMUM:
            return combine<MAXIMUM>(o, each);
        case MINIMUM:
            return combine<MINIMUM>(o, each);
        case MULTIPLY_ADD:
            return combine<MULTIPLY_ADD>(o, each);
        case ACTIVATE:
            return with_activation(each.activation, [&](auto known) {
                activate_to<decltype(known)::kind>(o.a, o.to, o.count, static_cast<float>(each.lo),
                                                   static_cast<float>(each.hi), o.b);
            });
        case POWER:
            return raise(o, static_cast<float>(each.lo));
        case EXP:
            return map(o, [](vf x) { return exponential(x); });
        case LOG:
            return map(o, [](vf x) { return logarithm(x); });
        case SQRT:
            return map_each(o, [](float x) { return std::sqrt(x); });
        case RSQRT:
            return map_each(o, [](float x) { return 1.0f / std::sqrt(x); });
        case ABS:
            return map(o, [](vf x) { return magnitude(x); });
        case NEGATE:
            return map(o, [](vf x) { return -x; });
        case RECIPROCAL:
            return map(o, [](vf x) { return 1.0f / x; });
        case ERF:
            return map(o, [](vf x) { return erf_of(x); });
        default:
            return std::fill(o.to, o.to + o.count, static_cast<float>(each.lo));
    }
}

}  // namespace engine
}  // namespace nhwc
