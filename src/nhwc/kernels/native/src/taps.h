// Sums of weighted rows of contiguous channels: what every sampling kernel does at a point.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "vector.h"

namespace nhwc {

// A row of channels, by its number, and its weight.
template <class A>
struct Tap {
    int64_t row;
    A weight;
};

// y[c] = the sum over taps of weight * x[row * channels + c]; scratch holds `channels` values.
template <class T>
void gather_row(const T* x, const Tap<accumulate_t<T>>* taps, int64_t count, int64_t channels,
                accumulate_t<T>* scratch, T* y) {
    using A = accumulate_t<T>;
    A* __restrict sum = scratch;
    T* __restrict out = y;
    int64_t at = count % 4;
    if (at == 0 && count > 0) at = 4;
    const auto source = [&](int64_t k) { return x + taps[k].row * channels; };
    const bool last = at == count;
    if (at == 4) {
        const T *__restrict p = source(0), *__restrict q = source(1), *__restrict r = source(2), *__restrict s = source(3);
        const A a = taps[0].weight, b = taps[1].weight, c = taps[2].weight, d = taps[3].weight;
        if (last) {
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < channels; ++j)
                store(out + j, load(p + j) * a + load(q + j) * b + load(r + j) * c + load(s + j) * d);
            return;
        }
        NHWC_INDEPENDENT
        for (int64_t j = 0; j < channels; ++j)
            sum[j] = load(p + j) * a + load(q + j) * b + load(r + j) * c + load(s + j) * d;
    } else if (last && at == 1) {
        const T* __restrict p = source(0);
        const A a = taps[0].weight;
        NHWC_INDEPENDENT
        for (int64_t j = 0; j < channels; ++j) store(out + j, load(p + j) * a);
        return;
    } else {
        std::fill(sum, sum + channels, A(0));
        for (int64_t k = 0; k < at; ++k) {
            const T* __restrict p = source(k);
            const A a = taps[k].weight;
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < channels; ++j) sum[j] += load(p + j) * a;
        }
    }
    for (; at < count; at += 4) {
        const T *__restrict p = source(at), *__restrict q = source(at + 1), *__restrict r = source(at + 2),
                            *__restrict s = source(at + 3);
        const A a = taps[at].weight, b = taps[at + 1].weight, c = taps[at + 2].weight, d = taps[at + 3].weight;
        NHWC_INDEPENDENT
        for (int64_t j = 0; j < channels; ++j)
            sum[j] += load(p + j) * a + load(q + j) * b + load(r + j) * c + load(s + j) * d;
    }
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) store(out + j, sum[j]);
}

// The sum over channels of a[c] * b[c], in sixteen partial sums: one order for every instruction set.
template <class T>
accumulate_t<T> dot_row(const T* a, const T* b, int64_t channels) {
    using A = accumulate_t<T>;
    constexpr int64_t LANES = 16;
    A sums[LANES] = {};
    const T *__restrict p = a, *__restrict q = b;
    int64_t j = 0;
    for (; j + LANES <= channels; j += LANES)
        for (int64_t k = 0; k < LANES; ++k) sums[k] += load(p + j + k) * load(q + j + k);
    A total(0);
    for (; j < channels; ++j) total += load(p + j) * load(q + j);
    for (int64_t k = 0; k < LANES; ++k) total += sums[k];
    return total;
}

// to[c] += weight * from[c] over a block of channels.
template <class T>
void add_row(accumulate_t<T>* to, const T* from, accumulate_t<T> weight, int64_t channels) {
    accumulate_t<T>* __restrict out = to;
    const T* __restrict in = from;
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) out[j] += load(in + j) * weight;
}

// Channels per task where a scatter is shared out by channels: whole cache lines of float.
constexpr int64_t CHANNEL_BLOCK = 32;

}  // namespace nhwc
