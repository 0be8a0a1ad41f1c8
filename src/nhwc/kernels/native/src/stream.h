// Writing past the caches: a large result saves reading its lines first, and leaves what is cached where it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace nhwc {

#if defined(__AVX512F__)
constexpr int MOST_LANES = 4;
#elif defined(__AVX2__)
constexpr int MOST_LANES = 2;
#else
constexpr int MOST_LANES = 1;
#endif

typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));

template <int LANES>
struct vector_of;
template <>
struct vector_of<1> {
    using type = u32x4;
};
template <>
struct vector_of<2> {
    using type = u32x8;
};
template <>
struct vector_of<4> {
    using type = u32x16;
};

constexpr int64_t LINE = 64;

// Whether a result of so many bytes is streamed: it would push everything else out of the caches.
inline bool is_streamed(int64_t bytes) {
#if defined(__SSE2__)
    return bytes >= 8 << 20;
#else
    (void)bytes;
    return false;
#endif
}

// STREAM: `to` is aligned to the vector.
template <bool STREAM, class V>
inline void put(void* to, V value) {
    if constexpr (STREAM) {
#if defined(__AVX512F__)
        if constexpr (sizeof(V) == 64) return _mm512_stream_si512(static_cast<__m512i*>(to), (__m512i)value);
#endif
#if defined(__AVX2__)
        if constexpr (sizeof(V) == 32) return _mm256_stream_si256(static_cast<__m256i*>(to), (__m256i)value);
#endif
#if defined(__SSE2__)
        if constexpr (sizeof(V) == 16) return _mm_stream_si128(static_cast<__m128i*>(to), (__m128i)value);
#endif
    }
    std::memcpy(to, &value, sizeof value);
}

// Whole lines of the target past the caches.
template <class T>
void stream_out(const T* from, T* to, int64_t count) {
    const char* in = reinterpret_cast<const char*>(from);
    char* out = reinterpret_cast<char*>(to);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    const int64_t head = std::min(bytes, (LINE - static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % LINE)) % LINE);
    std::memcpy(out, in, static_cast<size_t>(head));
    int64_t at = head;
    for (; at + LINE <= bytes; at += LINE)
        for (int64_t part = 0; part < LINE; part += 16 * MOST_LANES) {
            typename vector_of<MOST_LANES>::type value;
            std::memcpy(&value, in + at + part, sizeof value);
            put<true>(out + at + part, value);
        }
    std::memcpy(out + at, in + at, static_cast<size_t>(bytes - at));
}

// Before another thread reads what was streamed.
inline void finish_streams() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

}  // namespace nhwc
