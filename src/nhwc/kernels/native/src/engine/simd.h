// Vectors of float for the engine's kernels: written once over LANES, compiled once per instruction set.
//
// Registers matter here, so the kernels name vectors instead of leaving loops to the compiler: `vf` is what one
// register holds, 16 floats with AVX-512, 8 with AVX2, else 4 (SSE2, NEON, and whatever the compiler makes of it
// elsewhere).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace nhwc {
namespace engine {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int REGISTERS = 32;
#elif defined(__AVX2__)
constexpr int LANES = 8;
constexpr int REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int LANES = 4;
constexpr int REGISTERS = 32;
#else
constexpr int LANES = 4;
constexpr int REGISTERS = 16;
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));

inline vf load(const float* from) {
    vf value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
inline void store(float* to, vf value) { std::memcpy(to, &value, sizeof value); }
// value - 0 is value, -0 too, so that nothing but the broadcast is left of it; value + 0 would take an addition.
inline vf splat(float value) { return value - vf{}; }

// The first `count` < LANES floats; the lanes after them are zero, and memory after them is not touched.
inline vf load_part(const float* from, int64_t count) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), from);
#else
    vf value{};
    std::memcpy(&value, from, static_cast<size_t>(count) * sizeof(float));
    return value;
#endif
}
inline void store_part(float* to, vf value, int64_t count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1u), (__m512)value);
#else
    std::memcpy(to, &value, static_cast<size_t>(count) * sizeof(float));
#endif
}

// max(bound, v) and min(bound, v), where a NaN in v stays one, as torch's clamp and relu have it. With a full mask,
// since GCC 12 warns of its own undefined value in the plain functions.
inline vf at_least(vf v, vf bound) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_max_ps(0xffff, (__m512)bound, (__m512)v);
#elif defined(__AVX__)
    return (vf)_mm256_max_ps((__m256)bound, (__m256)v);
#elif defined(__SSE2__)
    return (vf)_mm_max_ps((__m128)bound, (__m128)v);
#else
    return v < bound ? bound : v;
#endif
}
inline vf at_most(vf v, vf bound) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_min_ps(0xffff, (__m512)bound, (__m512)v);
#elif defined(__AVX__)
    return (vf)_mm256_min_ps((__m256)bound, (__m256)v);
#elif defined(__SSE2__)
    return (vf)_mm_min_ps((__m128)bound, (__m128)v);
#else
    return v > bound ? bound : v;
#endif
}
}  // namespace engine
}  // namespace nhwc
