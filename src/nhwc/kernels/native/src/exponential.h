// exp and log for whole vectors: the compiler turns loops over it into vector code, which it cannot do with the C library's.
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

// ln x for normal x > 0, to about two units in the last place; a NaN stays one. x = 2^e m with m in [sqrt 1/2, sqrt 2),
// and ln m = 2 atanh((m - 1) / (m + 1)) by its series.
inline float logarithm_of(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const int32_t shifted = bits - 0x3f3504f3, exponent = shifted >> 23;
    const int32_t fraction = (shifted & 0x007fffff) + 0x3f3504f3;
    float m;
    std::memcpy(&m, &fraction, sizeof m);
    const float s = (m - 1.0f) / (m + 1.0f), square = s * s;
    float p = 1.0f / 9.0f;
    p = p * square + 1.0f / 7.0f;
    p = p * square + 1.0f / 5.0f;
    p = p * square + 1.0f / 3.0f;
    const float e = static_cast<float>(exponent);
    const float found = e * 0.693145752f + (2.0f * s + (2.0f * s * square * p + e * 1.42860677e-6f));
    return x == x ? found : x;
}

inline double logarithm_of(double x) { return std::log(x); }

}  // namespace nhwc
