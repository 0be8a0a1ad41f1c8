// exp, tanh, erf and their kin on whole vectors of float: a unit or two in the last place, with NaN and infinities as
// the C library has them. The polynomials are weighted minimax fits of our own to 40-digit values.
#pragma once

#include <cstdint>
#include <limits>

#include "simd.h"

namespace nhwc {
namespace engine {

inline vi bits_of(vf v) { return (vi)v; }
inline vf float_of(vi bits) { return (vf)bits; }
inline vf magnitude(vf v) { return float_of(bits_of(v) & 0x7fffffff); }
// |of| with the sign of `sign`, `of` being no less than zero.
inline vf with_sign(vf of, vf sign) {
    return float_of(bits_of(of) | (bits_of(sign) & static_cast<int32_t>(0x80000000)));
}

// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r = 1 + r + r² p: what every exponential starts with.
struct Reduced {
    vf r, tail;  // tail = r² p
    vf n;        // whole
};

constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

// |x| stays below 2^21.
inline Reduced reduced(vf x) {
    const vf n = (x * 1.44269504f + ROUND) - ROUND;
    const vf r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    vf p = r * 0.0013950486f + 0.0083688679f;
    p = p * r + 0.0416662059f;
    p = p * r + 0.1666651886f;
    p = p * r + 0.5000000095f;
    return {r, r * r * p, n};
}

// 2^n for -127 <= n <= 128: 0 for the first, infinity for the last.
inline vf power_of_two(vf n) { return float_of((bits_of(n + (ROUND + 127.0f)) - bits_of(splat(ROUND))) << 23); }

// value * 2^n for x >= LOWEST, where what is no normal number may be 0 or infinite; 0 at LOWEST.
#if defined(__AVX512F__)
constexpr float LOWEST = -200.0f;
inline vf scaled(vf value, vf n) { return (vf)_mm512_maskz_scalef_ps(0xffff, (__m512)value, (__m512)n); }
#else
constexpr float LOWEST = -88.0f;
inline vf scaled(vf value, vf n) { return value * power_of_two(n); }
#endif

// e^x where results below 2^-126 may become 0 and those above 2^127.5 infinite: in sums, and in 1 / (1 + e^x).
inline vf exponential_normal(vf x) {
    const Reduced e = reduced(at_most(at_least(x, splat(LOWEST)), splat(88.8f)));
    return scaled(e.tail + e.r + 1.0f, e.n);
}

// e^x over all floats.
inline vf exponential(vf x) {
    const Reduced e = reduced(at_most(at_least(x, splat(-104.0f)), splat(88.8f)));
    // 2^n in two factors, since 2^128 and 2^-149 are no normal numbers
    const vf half = (e.n * 0.5f + ROUND) - ROUND;
    return ((e.tail + e.r + 1.0f) * power_of_two(half)) * power_of_two(e.n - half);
}

// e^x - 1 for x <= 0, exact near zero too; 0 above.
inline vf exponential_minus_one(vf x) {
    const Reduced e = reduced(at_most(at_least(x, splat(-30.0f)), splat(0.0f)));
    const vf scale = power_of_two(e.n);
    return (e.tail + e.r) * scale + (scale - 1.0f);
}

// ln(1 + u) for 0 <= u <= 1, by atanh(u / (2 + u)).
inline vf logarithm_one_plus(vf u) {
    const vf s = u / (u + 2.0f), z = s * s;
    vf p = z * 0.1221245048f + 0.1069498138f;
    p = p * z + 0.1431052094f;
    p = p * z + 0.199993391f;
    p = p * z + 0.3333333974f;
    return s * 2.0f + s * 2.0f * (z * p);
}

// ln x for all x: -inf at 0, NaN below.
inline vf logarithm(vf x) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    const vi is_tiny = x < 1.17549435e-38f;
    const vf scaled = is_tiny ? x * 8388608.0f : x;
    // x = 2^e m with m in [sqrt 1/2, sqrt 2)
    const vi shifted = bits_of(scaled) - 0x3f3504f3;
    const vf m = float_of((shifted & 0x007fffff) + 0x3f3504f3);
    const vf e = __builtin_convertvector(shifted >> 23, vf) - (is_tiny ? splat(23.0f) : splat(0.0f));
    const vf f = m - 1.0f, s = f / (m + 1.0f), z = s * s;
    vf p = z * 0.1221245048f + 0.1069498138f;
    p = p * z + 0.1431052094f;
    p = p * z + 0.199993391f;
    p = p * z + 0.3333333974f;
    // ln m = 2 s + 2 s z p, with 2 s = f - s f so that nothing is lost near one
    const vf found = e * 0.693145752f + (f - s * (f - z * p * 2.0f) + e * 1.42860677e-6f);
    const vf finite = x < inf ? found : x;
    const vf signless = x > 0.0f ? finite : splat(-inf);
    return x >= 0.0f ? signless : splat(std::numeric_limits<float>::quiet_NaN());
}

inline vf sigmoid(vf x) { return 1.0f / (exponential_normal(-x) + 1.0f); }

// (e^2x - 1) / (e^2x + 1), by e^2x - 1, which is exact near zero too; 1 from 10 on.
inline vf tanh_of(vf x) {
    const Reduced e = reduced(at_most(at_least(x * 2.0f, splat(-20.0f)), splat(20.0f)));
    const vf scale = power_of_two(e.n), less = (e.tail + e.r) * scale + (scale - 1.0f);
    return less / (less + 2.0f);
}

inline vf erf_of(vf x) {
    const vf a = magnitude(x), z = x * x;
    vf p = z * 7.8891193e-05f - 0.00080208411f;
    p = p * z + 0.0051895352f;
    p = p * z - 0.0268544443f;
    p = p * z + 0.1128360033f;
    p = p * z - 0.3761262596f;
    const vf small = x * 1.1283791065f + x * (z * p);
    // 1 - erfc, whose logarithm is a polynomial from 1 to 4, where erf is 1
    const vf c = at_most(a, splat(4.0f));
    vf q = c * 0.00018557489f - 0.0029396157f;
    q = q * c + 0.0218053552f;
    q = q * c - 0.1030374355f;
    q = q * c - 0.6382256024f;
    q = q * c - 1.12704008f;
    q = q * c - 0.00035370893f;
    const Reduced e = reduced(q);
    const vf large = 1.0f - scaled(e.tail + e.r + 1.0f, e.n);
    return a < 1.0f ? small : with_sign(large, x);
}

}  // namespace engine
}  // namespace nhwc
