// exp for whole vectors: the compiler turns loops over it into vector code, which it cannot do with the C library's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace nhwc {

// e^x to about one unit in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor polynomial.
// Results below the smallest normal number may lose digits; -inf gives 0 and a NaN stays one.
inline float exponential(float x) {
    // a NaN too starts from there: it has no integer, and is put back at the end
    const float low = x > -103.9f ? x : -103.9f;
    const float clamped = low > 88.72283f ? 88.72283f : low;
    const float n = std::nearbyint(clamped * 1.44269504f);
    const float r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    // 2^n in two factors, since 2^128 and 2^-149 are no normal numbers
    const int32_t whole = static_cast<int32_t>(n), half = whole >> 1;
    const int32_t first_bits = (half + 127) << 23, second_bits = (whole - half + 127) << 23;
    float first, second;
    std::memcpy(&first, &first_bits, sizeof first);
    std::memcpy(&second, &second_bits, sizeof second);
    const float scaled = (p * first) * second;
    const float small = x >= -103.9f ? scaled : (x < -103.9f ? 0.0f : x);
    return x > 88.72284f ? INFINITY : small;
}

inline double exponential(double x) { return std::exp(x); }

}  // namespace nhwc
