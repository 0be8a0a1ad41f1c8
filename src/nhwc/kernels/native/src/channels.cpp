// Moving channels within and between channels-last rows: joins, gathers and shuffles. Values are moved, never computed.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// Whole vectors, the last of which overlaps the one before; short rows element by element.
template <class T>
inline void move(const T* __restrict in, T* __restrict out, int64_t count) {
    constexpr int64_t WHOLE = 64 / sizeof(T);
    if (count < WHOLE) {
        for (int64_t c = 0; c < count; ++c) out[c] = in[c];
        return;
    }
    for (int64_t c = 0; c + WHOLE <= count; c += WHOLE) std::memcpy(out + c, in + c, 64);
    std::memcpy(out + count - WHOLE, in + count - WHOLE, 64);
}

template <class T>
void copy_rows(const void* source, int64_t source_step, void* target, int64_t target_step, int64_t rows,
               int64_t channels) {
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    parallel_for(rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) move(from + row * source_step, to + row * target_step, channels);
    });
}

// Row by row from all operands, so that every row of the result is written at once.
template <class T>
void join(const void* const* sources, const int64_t* steps, const int64_t* widths, int64_t count, void* target,
          int64_t rows) {
    T* to = static_cast<T*>(target);
    int64_t width = 0;
    for (int64_t k = 0; k < count; ++k) width += widths[k];
    parallel_for(rows, grain_for(width), [&](int64_t begin, int64_t end) {
        T* out = to + begin * width;
        for (int64_t row = begin; row < end; ++row)
            for (int64_t k = 0; k < count; ++k) {
                move(static_cast<const T*>(sources[k]) + row * steps[k], out, widths[k]);
                out += widths[k];
            }
    });
}

// One by one: the processor's own gathers take up to twice the time.
template <class T>
NHWC_SCALAR void pick(const T* __restrict in, T* __restrict out, const int32_t* __restrict index, int64_t taken) {
    int64_t j = 0;
    for (; j + 4 <= taken; j += 4) {
        const T a = in[index[j]], b = in[index[j + 1]], c = in[index[j + 2]], d = in[index[j + 3]];
        out[j] = a;
        out[j + 1] = b;
        out[j + 2] = c;
        out[j + 3] = d;
    }
    for (; j < taken; ++j) out[j] = in[index[j]];
}

template <class T>
void gather(const void* source, void* target, const int32_t* index, int64_t rows, int64_t channels, int64_t taken) {
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    parallel_for(rows, grain_for(taken), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) pick(from + row * channels, to + row * taken, index, taken);
    });
}

// Where each channel of the result comes from; -1 where no index names it; `repeated` where several do.
struct Origin {
    Origin(const int64_t* index, int64_t taken, int64_t channels)
        : place(static_cast<size_t>(channels), -1), repeated(false) {
        for (int64_t j = 0; j < taken; ++j) {
            repeated = repeated || place[index[j]] >= 0;
            place[index[j]] = static_cast<int32_t>(j);
        }
    }
    std::vector<int32_t> place;
    bool repeated;
};

// The bits of T, to be cleared by a mask.
template <class T>
using bits_t = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T>
void spread_unique(const T* from, T* to, const Origin& origin, int64_t rows, int64_t channels, int64_t taken) {
    using B = bits_t<T>;
    std::vector<int32_t> place(origin.place);
    std::vector<B> mask(static_cast<size_t>(channels));
    for (int64_t c = 0; c < channels; ++c) {
        mask[c] = place[c] < 0 ? B(0) : static_cast<B>(~B(0));
        place[c] = std::max(place[c], 0);
    }
    parallel_for(rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const B* __restrict in = reinterpret_cast<const B*>(from) + row * taken;
            B* __restrict out = reinterpret_cast<B*>(to) + row * channels;
            const int32_t* __restrict p = place.data();
            const B* __restrict m = mask.data();
            NHWC_INDEPENDENT
            for (int64_t c = 0; c < channels; ++c) out[c] = in[p[c]] & m[c];
        }
    });
}

template <class T>
void spread(const void* source, void* target, const int64_t* index, int64_t rows, int64_t channels, int64_t taken) {
    using A = accumulate_t<T>;
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    const Origin origin(index, taken, channels);
    if (!origin.repeated) return spread_unique(from, to, origin, rows, channels, taken);
    parallel_for(rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        std::vector<A> sums(static_cast<size_t>(channels));
        for (int64_t row = begin; row < end; ++row) {
            std::fill(sums.begin(), sums.end(), A(0));
            for (int64_t j = 0; j < taken; ++j) sums[index[j]] += load(from + row * taken + j);
            for (int64_t c = 0; c < channels; ++c) store(to + row * channels + c, sums[c]);
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
    NHWC_INDEPENDENT
    for (int64_t o = 0; o < outer; ++o)
        for (int i = 0; i < INNER; ++i) out[i * outer + o] = in[o * INNER + i];
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
        for (int64_t row = begin; row < end; ++row)
            shuffle_row(from + row * channels, to + row * channels, outer, inner);
    });
}

}  // namespace
}  // namespace nhwc

// `channels` elements of each of `rows` rows; the rows lie `from_step` and `to_step` elements apart.
NHWC_EXPORT(copy_rows)(int bytes, const void* from, int64_t from_step, void* to, int64_t to_step, int64_t rows,
                       int64_t channels){
    NHWC_FOR_BYTES(bytes, nhwc::copy_rows, from, from_step, to, to_step, rows, channels)}

// to (rows, sum of widths): `widths[k]` elements of each row of `from[k]`, whose rows lie `steps[k]` elements apart.
NHWC_EXPORT(join_channels)(int bytes, const void* const* from, const int64_t* steps, const int64_t* widths,
                           int64_t count, void* to,
                           int64_t rows){NHWC_FOR_BYTES(bytes, nhwc::join, from, steps, widths, count, to, rows)}

// to (rows, taken) = from (rows, channels)[:, index]; every index is in range.
NHWC_EXPORT(gather_channels)(int bytes, const void* from, void* to, const int32_t* index, int64_t rows,
                             int64_t channels,
                             int64_t taken){NHWC_FOR_BYTES(bytes, nhwc::gather, from, to, index, rows, channels, taken)}

// to (rows, channels), of zeros, with from (rows, taken) added at [:, index]; every index is in range.
NHWC_EXPORT(spread_channels)(int dtype, const void* from, void* to, const int64_t* index, int64_t rows,
                             int64_t channels,
                             int64_t taken){NHWC_FOR_DTYPE(dtype, nhwc::spread, from, to, index, rows, channels, taken)}

// to (rows, inner, outer) = from (rows, outer, inner) with its last two dimensions transposed.
NHWC_EXPORT(shuffle_channels)(int bytes, const void* from, void* to, int64_t rows, int64_t outer, int64_t inner) {
    NHWC_FOR_BYTES(bytes, nhwc::shuffle, from, to, rows, outer, inner)
}
