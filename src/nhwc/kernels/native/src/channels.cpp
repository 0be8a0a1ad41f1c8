// Moving channels within and between channels-last rows: joins, gathers and shuffles. Values are moved, never computed.
#include <algorithm>
#include <cstring>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

template <class T>
void copy_rows(const void* source, int64_t source_step, void* target, int64_t target_step, int64_t rows, int64_t channels) {
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    parallel_for(rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const T* __restrict in = from + row * source_step;
            T* __restrict out = to + row * target_step;
            if (channels * sizeof(T) >= 256)
                std::memcpy(out, in, channels * sizeof(T));
            else
                for (int64_t c = 0; c < channels; ++c) out[c] = in[c];
        }
    });
}

template <class T>
void gather(const void* source, void* target, const int64_t* index, int64_t rows, int64_t channels, int64_t taken) {
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    parallel_for(rows, grain_for(taken), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const T* __restrict in = from + row * channels;
            T* __restrict out = to + row * taken;
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < taken; ++j) out[j] = in[index[j]];
        }
    });
}

// Each row, seen as (OUTER, inner), becomes (inner, OUTER); a fixed OUTER interleaves whole vectors.
template <class T, int OUTER>
inline void interleave(const T* __restrict in, T* __restrict out, int64_t inner) {
    for (int64_t i = 0; i < inner; ++i)
        for (int o = 0; o < OUTER; ++o) out[i * OUTER + o] = in[o * inner + i];
}
template <class T, int INNER>
inline void separate(const T* __restrict in, T* __restrict out, int64_t outer) {
    for (int i = 0; i < INNER; ++i)
        for (int64_t o = 0; o < outer; ++o) out[i * outer + o] = in[o * INNER + i];
}

template <class T>
void shuffle_row(const T* in, T* out, int64_t outer, int64_t inner) {
    if (outer == 2) return interleave<T, 2>(in, out, inner);
    if (outer == 3) return interleave<T, 3>(in, out, inner);
    if (outer == 4) return interleave<T, 4>(in, out, inner);
    if (inner == 2) return separate<T, 2>(in, out, outer);
    if (inner == 3) return separate<T, 3>(in, out, outer);
    if (inner == 4) return separate<T, 4>(in, out, outer);
    for (int64_t i = 0; i < inner; ++i)
        for (int64_t o = 0; o < outer; ++o) out[i * outer + o] = in[o * inner + i];
}

template <class T>
void shuffle(const void* source, void* target, int64_t rows, int64_t outer, int64_t inner) {
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    const int64_t channels = outer * inner;
    parallel_for(rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) shuffle_row(from + row * channels, to + row * channels, outer, inner);
    });
}

}  // namespace
}  // namespace nhwc

// `channels` elements of each of `rows` rows; the rows lie `from_step` and `to_step` elements apart.
NHWC_EXPORT(copy_rows)(int bytes, const void* from, int64_t from_step, void* to, int64_t to_step, int64_t rows,
                       int64_t channels) {
    NHWC_FOR_BYTES(bytes, nhwc::copy_rows, from, from_step, to, to_step, rows, channels)
}

// to (rows, taken) = from (rows, channels)[:, index]; every index is in range.
NHWC_EXPORT(gather_channels)(int bytes, const void* from, void* to, const int64_t* index, int64_t rows, int64_t channels,
                             int64_t taken) {
    NHWC_FOR_BYTES(bytes, nhwc::gather, from, to, index, rows, channels, taken)
}

// to (rows, inner, outer) = from (rows, outer, inner) with its last two dimensions transposed.
NHWC_EXPORT(shuffle_channels)(int bytes, const void* from, void* to, int64_t rows, int64_t outer, int64_t inner) {
    NHWC_FOR_BYTES(bytes, nhwc::shuffle, from, to, rows, outer, inner)
}
