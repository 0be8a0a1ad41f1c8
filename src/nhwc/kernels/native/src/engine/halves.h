// Weights of 16 bits as vectors of float: what is read takes half the bytes, what is computed stays float32.
#pragma once

#include "simd.h"

namespace nhwc {
namespace engine {

typedef uint16_t vh __attribute__((vector_size(2 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));

inline vh load_halves(const uint16_t* from) {
    vh value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

struct BFloat16 {
    static vf widened(const uint16_t* from) { return (vf)(__builtin_convertvector(load_halves(from), vu) << 16); }
};

// Finite ones; without the instruction, where denormals are flushed, those of float16 become zeros.
struct Float16 {
    static vf widened(const uint16_t* from) {
#if defined(__AVX512F__)
        return (vf)_mm512_cvtph_ps((__m256i)load_halves(from));
#elif defined(__F16C__)
        return (vf)_mm256_cvtph_ps((__m128i)load_halves(from));
#else
        const vu bits = __builtin_convertvector(load_halves(from), vu);
        const vf magnitude = (vf)((bits & 0x7fffu) << 13) * 0x1p112f;  // the exponents' biases differ by 112
        return (vf)((vu)magnitude | ((bits & 0x8000u) << 16));
#endif
    }
};

}  // namespace engine
}  // namespace nhwc
