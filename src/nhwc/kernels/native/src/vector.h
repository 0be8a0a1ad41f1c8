// Element types and the loops over contiguous channels that every kernel is made of.
//
// A kernel is written once as a template over the element type and compiled once per instruction set; the loops are
// plain, so that the compiler vectorises them for each. Arithmetic runs in accumulate_t: float for the 16-bit types.
#pragma once

#include <cstdint>
#include <cstring>

// Before its version 13, GCC on Arm has the type in C++ under an older name only, as one that is but stored.
#if defined(__aarch64__) && !defined(__clang__) && __GNUC__ < 13
using _Float16 = __fp16;
#endif

namespace nhwc {

struct bfloat16 {
    uint16_t bits;
};

template <class T>
struct accumulate {
    using type = T;
};
template <>
struct accumulate<bfloat16> {
    using type = float;
};
template <>
struct accumulate<_Float16> {
    using type = float;
};
template <class T>
using accumulate_t = typename accumulate<T>::type;

inline float load(const float* from) { return *from; }
inline double load(const double* from) { return *from; }
inline float load(const _Float16* from) { return static_cast<float>(*from); }
inline float load(const bfloat16* from) {
    const uint32_t wide = static_cast<uint32_t>(from->bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

inline void store(float* to, float value) { *to = value; }
inline void store(double* to, double value) { *to = value; }
inline void store(_Float16* to, float value) { *to = static_cast<_Float16>(value); }
inline void store(bfloat16* to, float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    // Round to nearest, ties to even; a NaN keeps its sign and becomes quiet.
    const uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
    const uint32_t quiet = (wide >> 16) | 0x40u;
    to->bits = static_cast<uint16_t>((wide & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// The codes by which Python names an element type; see library.py.
enum : int { FLOAT32 = 0, FLOAT64 = 1, BFLOAT16 = 2, FLOAT16 = 3 };

}  // namespace nhwc

// Calls the template function NAME<T>(...) for the element type of the code DTYPE.
#define NHWC_FOR_DTYPE(DTYPE, NAME, ...)         \
    switch (DTYPE) {                             \
        case ::nhwc::FLOAT32:                    \
            NAME<float>(__VA_ARGS__);            \
            break;                               \
        case ::nhwc::FLOAT64:                    \
            NAME<double>(__VA_ARGS__);           \
            break;                               \
        case ::nhwc::BFLOAT16:                   \
            NAME<::nhwc::bfloat16>(__VA_ARGS__); \
            break;                               \
        case ::nhwc::FLOAT16:                    \
            NAME<_Float16>(__VA_ARGS__);         \
            break;                               \
        default:                                 \
            break;                               \
    }

// Calls the template function NAME<T>(...) for an unsigned element of BYTES bytes, where values are only moved.
#define NHWC_FOR_BYTES(BYTES, NAME, ...) \
    switch (BYTES) {                     \
        case 1:                          \
            NAME<uint8_t>(__VA_ARGS__);  \
            break;                       \
        case 2:                          \
            NAME<uint16_t>(__VA_ARGS__); \
            break;                       \
        case 4:                          \
            NAME<uint32_t>(__VA_ARGS__); \
            break;                       \
        case 8:                          \
            NAME<uint64_t>(__VA_ARGS__); \
            break;                       \
        default:                         \
            break;                       \
    }

// The loop that follows has independent iterations.
#define NHWC_INDEPENDENT _Pragma("GCC ivdep")

// The function's loops stay as they are written, element by element.
#ifdef __clang__
#define NHWC_SCALAR
#else
#define NHWC_SCALAR __attribute__((noinline, optimize("no-tree-vectorize")))
#endif

// The short loop of fixed length that follows becomes vector code; unrolled first, it would not.
#define NHWC_VECTOR _Pragma("omp simd")
