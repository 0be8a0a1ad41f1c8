// Pixels of four bytes, as decoders keep them, to pixels of three.
#include "export.h"
#include "parallel.h"

#if defined(__SSSE3__)
#include <immintrin.h>
#endif

namespace nhwc {
namespace {

constexpr int64_t PIXELS_PER_TASK = 1 << 16;

void pack(const uint8_t* __restrict from, uint8_t* __restrict to, int64_t pixels) {
    int64_t at = 0;
#if defined(__SSSE3__)
    // Four pixels at a time; the last four of the sixteen bytes written are the next round's to write again.
    const __m128i places = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    for (; at + 6 <= pixels; at += 4) {
        const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at * 4));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at * 3), _mm_shuffle_epi8(four, places));
    }
#endif
    for (; at < pixels; ++at) {
        to[at * 3] = from[at * 4];
        to[at * 3 + 1] = from[at * 4 + 1];
        to[at * 3 + 2] = from[at * 4 + 2];
    }
}

}  // namespace
}  // namespace nhwc

NHWC_EXPORT(pack_pixels)(const uint8_t* from, uint8_t* to, int64_t pixels) {
    nhwc::parallel_for(pixels, nhwc::PIXELS_PER_TASK,
                       [&](int64_t begin, int64_t end) { nhwc::pack(from + begin * 4, to + begin * 3, end - begin); });
}
