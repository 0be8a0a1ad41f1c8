// Softmax and log-softmax over the channels of channels-last rows, forward and backward.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "blocks.h"
#include "exponential.h"
#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// Rows are widened to whole vectors, so that no loop has a scalar rest.
constexpr int64_t WIDTH = 16;

template <class A>
struct Row {
    explicit Row(int64_t channels) : padded((channels + WIDTH - 1) / WIDTH * WIDTH), one(padded), two(padded) {}
    int64_t padded;
    std::vector<A> one, two;
};

template <class T>
void fill(const T* from, int64_t channels, accumulate_t<T>* to, int64_t padded, accumulate_t<T> rest) {
    for (int64_t c = 0; c < channels; ++c) to[c] = load(from + c);
    for (int64_t c = channels; c < padded; ++c) to[c] = rest;
}

template <class A>
A largest(const A* values, int64_t count) {
    A found = values[0];
#pragma omp simd reduction(max : found)
    for (int64_t c = 0; c < count; ++c) found = values[c] > found ? values[c] : found;
    return found;
}

template <class A>
A total(const A* values, int64_t count) {
    A found = A(0);
#pragma omp simd reduction(+ : found)
    for (int64_t c = 0; c < count; ++c) found += values[c];
    return found;
}

// Up to this many channels, blocks of rows are transposed in cache: vectors then run across rows, and nothing is
// padded.
constexpr int64_t FEW = 64;
constexpr int64_t BLOCK = WIDTH;

// Rows as they lie in memory, and the same as (channels, BLOCK). Both have room for the whole register blocks that
// reach past the last channel, whose values there are never used.
template <class A>
struct Turned {
    static constexpr int64_t SIDE = BLOCK_COLUMNS<sizeof(A), MOST_LANES>;

    explicit Turned(int64_t channels)
        : channels(channels),
          rows(static_cast<size_t>(BLOCK * channels + SIDE), A(0)),
          columns(static_cast<size_t>((channels + SIDE) * BLOCK), A(0)) {}

    // `count` rows; those that are missing keep what they held. Rows of the right type, with `room` behind them for
    // what the last block reads too much, are turned where they lie.
    template <class T>
    void gather(const T* __restrict from, int64_t count, bool room) {
        const A* source = rows.data();
        if constexpr (std::is_same_v<T, A>)
            if (room) source = from;
        if (source == rows.data()) {
            A* __restrict to = rows.data();
            for (int64_t j = 0; j < count * channels; ++j) to[j] = load(from + j);
        }
        for (int64_t c = 0; c < channels; c += SIDE)
            for (int64_t r = 0; r < BLOCK; r += SIDE)
                block<MOST_LANES, false>(source + r * channels + c, channels, columns.data() + c * BLOCK + r, BLOCK);
    }

    // Later channels first, and earlier rows: what a block writes past the last channel is then written over; behind
    // the last row there must be `room` for it.
    template <class T>
    void scatter(T* __restrict to, int64_t count, bool room) {
        A* target = rows.data();
        if constexpr (std::is_same_v<T, A>)
            if (room) target = to;
        for (int64_t c = (channels - 1) / SIDE * SIDE; c >= 0; c -= SIDE)
            for (int64_t r = 0; r < BLOCK; r += SIDE)
                block<MOST_LANES, false>(columns.data() + c * BLOCK + r, BLOCK, target + r * channels + c, channels);
        if (target != rows.data()) return;
        const A* __restrict from = rows.data();
        for (int64_t j = 0; j < count * channels; ++j) store(to + j, from[j]);
    }

    // Whether blocks [b + 1, end) hold what the register blocks of block b reach over its end: the last may be short.
    bool room_behind(int64_t b, int64_t end, int64_t all_rows) const {
        return (std::min(all_rows, end * BLOCK) - (b + 1) * BLOCK) * channels >= SIDE;
    }

    int64_t channels;
    std::vector<A> rows, columns;
};

template <class T>
void forward_few(const T* from, T* to, int logarithm, int64_t rows, int64_t channels) {
    using A = accumulate_t<T>;
    parallel_for((rows + BLOCK - 1) / BLOCK, grain_for(channels * BLOCK), [&](int64_t begin, int64_t end) {
        Turned<A> turned(channels);
        std::vector<A> memory(static_cast<size_t>(channels * BLOCK));
        A* __restrict x = turned.columns.data(), * __restrict e = memory.data();
        for (int64_t b = begin; b < end; ++b) {
            const int64_t count = std::min(BLOCK, rows - b * BLOCK);
            turned.gather(from + b * BLOCK * channels, count, turned.room_behind(b, end, rows));
            A top[BLOCK], sum[BLOCK];
            NHWC_VECTOR
            for (int64_t r = 0; r < BLOCK; ++r) top[r] = x[r], sum[r] = A(0);
            for (int64_t c = 1; c < channels; ++c) NHWC_VECTOR
            for (int64_t r = 0; r < BLOCK; ++r) top[r] = x[c * BLOCK + r] > top[r] ? x[c * BLOCK + r] : top[r];
            for (int64_t c = 0; c < channels; ++c) NHWC_VECTOR
            for (int64_t r = 0; r < BLOCK; ++r) {
                x[c * BLOCK + r] -= top[r];
                e[c * BLOCK + r] = exponential(x[c * BLOCK + r]);
                sum[r] += e[c * BLOCK + r];
            }
            if (logarithm != 0) NHWC_VECTOR
            for (int64_t r = 0; r < BLOCK; ++r) sum[r] = logarithm_of(sum[r]);
            for (int64_t c = 0; c < channels; ++c) NHWC_VECTOR
            for (int64_t r = 0; r < BLOCK; ++r)
                x[c * BLOCK + r] = logarithm != 0 ? x[c * BLOCK + r] - sum[r] : e[c * BLOCK + r] / sum[r];
            turned.scatter(to + b * BLOCK * channels, count, turned.room_behind(b, end, rows));
        }
    });
}

template <class T>
void backward_few(const T* grad, const T* from, T* to, int logarithm, int64_t rows, int64_t channels) {
    using A = accumulate_t<T>;
    parallel_for((rows + BLOCK - 1) / BLOCK, grain_for(channels * BLOCK), [&](int64_t begin, int64_t end) {
        Turned<A> gradient(channels), result(channels);
        A* __restrict g = gradient.columns.data(), * __restrict y = result.columns.data();
        for (int64_t b = begin; b < end; ++b) {
            const int64_t count = std::min(BLOCK, rows - b * BLOCK), offset = b * BLOCK * channels;
            const bool room = gradient.room_behind(b, end, rows);
            gradient.gather(grad + offset, count, room);
            result.gather(from + offset, count, room);
            A sum[BLOCK] = {};
            for (int64_t c = 0; c < channels; ++c) NHWC_VECTOR
            for (int64_t r = 0; r < BLOCK; ++r)
                sum[r] += logarithm != 0 ? g[c * BLOCK + r] : g[c * BLOCK + r] * y[c * BLOCK + r];
            if (logarithm != 0)
                for (int64_t c = 0; c < channels; ++c) NHWC_VECTOR
            for (int64_t r = 0; r < BLOCK; ++r) g[c * BLOCK + r] -= exponential(y[c * BLOCK + r]) * sum[r];
            else for (int64_t c = 0; c < channels; ++c) NHWC_VECTOR for (int64_t r = 0; r < BLOCK; ++r)
                g[c * BLOCK + r] = (g[c * BLOCK + r] - sum[r]) * y[c * BLOCK + r];
            gradient.scatter(to + offset, count, room);
        }
    });
}

// A NaN spoils the sum, and with it the whole row, as in torch.
template <class T>
void forward(const void* source, void* target, int logarithm, int64_t rows, int64_t channels) {
    using A = accumulate_t<T>;
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    if (channels <= FEW) return forward_few(from, to, logarithm, rows, channels);
    parallel_for(rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        Row<A> row(channels);
        A* __restrict x = row.one.data(), * __restrict e = row.two.data();
        for (int64_t r = begin; r < end; ++r) {
            fill(from + r * channels, channels, x, row.padded, -std::numeric_limits<A>::infinity());
            const A top = largest(x, row.padded);
            NHWC_INDEPENDENT
            for (int64_t c = 0; c < row.padded; ++c) e[c] = exponential(x[c] - top);
            for (int64_t c = channels; c < row.padded; ++c) e[c] = A(0);
            const A sum = total(e, row.padded);
            T* __restrict out = to + r * channels;
            if (logarithm != 0) {
                const A shift = std::log(sum);
                for (int64_t c = 0; c < channels; ++c) store(out + c, (x[c] - top) - shift);
            } else {
                for (int64_t c = 0; c < channels; ++c) store(out + c, e[c] / sum);
            }
        }
    });
}

template <class T>
void backward(const void* gradient, const void* output, void* target, int logarithm, int64_t rows, int64_t channels) {
    using A = accumulate_t<T>;
    const T* grad = static_cast<const T*>(gradient);
    const T* from = static_cast<const T*>(output);
    T* to = static_cast<T*>(target);
    if (channels <= FEW) return backward_few(grad, from, to, logarithm, rows, channels);
    parallel_for(rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        Row<A> row(channels);
        A* __restrict g = row.one.data(), * __restrict y = row.two.data();
        for (int64_t r = begin; r < end; ++r) {
            fill(grad + r * channels, channels, g, row.padded, A(0));
            fill(from + r * channels, channels, y, row.padded, A(0));
            T* __restrict out = to + r * channels;
            A sum = A(0);
            if (logarithm != 0) {
                sum = total(g, row.padded);
                NHWC_INDEPENDENT
                for (int64_t c = 0; c < row.padded; ++c) g[c] -= exponential(y[c]) * sum;
            } else {
#pragma omp simd reduction(+ : sum)
                for (int64_t c = 0; c < row.padded; ++c) sum += g[c] * y[c];
                NHWC_INDEPENDENT
                for (int64_t c = 0; c < row.padded; ++c) g[c] = (g[c] - sum) * y[c];
            }
            for (int64_t c = 0; c < channels; ++c) store(out + c, g[c]);
        }
    });
}

}  // namespace
}  // namespace nhwc

NHWC_EXPORT(softmax_forward)(int dtype, const void* x, void* y, int logarithm, int64_t rows,
                             int64_t channels){NHWC_FOR_DTYPE(dtype, nhwc::forward, x, y, logarithm, rows, channels)}

NHWC_EXPORT(softmax_backward)(int dtype, const void* dy, const void* y, void* dx, int logarithm, int64_t rows,
                              int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::backward, dy, y, dx, logarithm, rows, channels)
}
