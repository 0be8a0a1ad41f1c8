// What happens to a result before it is stored: an addend, bounds, an activation. Fused into the kernel that makes it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "../exponential.h"
#include "simd.h"
#include "step.h"

namespace nhwc {
namespace engine {

// The codes by which Python names activations; see inference/native.py. What is none or a clamp is done in registers,
// the rest on the finished rows while they lie in the cache.
enum Activation : int64_t {
    NONE = 0,
    CLAMP = 1,        // lo, hi; relu has hi = inf, relu6 is 0 and 6
    LEAKY_RELU = 2,   // lo: the negative slope
    SILU = 3,
    HARDSWISH = 4,
    HARDSIGMOID = 5,
    SIGMOID = 6,
    GELU = 7,         // by erf
    GELU_TANH = 8,    // by tanh
    TANH = 9,
    PRELU = 10,       // slope: one per channel
    ELU = 11,         // lo: alpha
    MISH = 12,
    SOFTPLUS = 13,    // lo: beta, hi: threshold
};

// result = activation(sum + bias + addend), or with addend_last: activation(sum + bias) + addend.
struct Epilogue {
    int64_t activation;
    int64_t addend_last;
    double lo, hi;
    Ref slope;
    Rows addend;      // at.base < 0: there is none
};

struct Bounds {
    vf lo, hi;
};

inline Bounds bounds_of(const Epilogue& epilogue) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    if (epilogue.activation != CLAMP) return {splat(-inf), splat(inf)};
    return {splat(static_cast<float>(epilogue.lo)), splat(static_cast<float>(epilogue.hi))};
}

inline bool is_in_registers(const Epilogue& epilogue) { return epilogue.activation <= CLAMP; }

inline vf bounded(vf v, const Bounds& bounds) { return at_most(at_least(v, bounds.lo), bounds.hi); }

}  // namespace engine
}  // namespace nhwc
