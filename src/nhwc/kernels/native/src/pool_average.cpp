// Average pooling over channels-last rows: any windows, forward and backward; x is (samples, depth, height, width, channels).
#include <algorithm>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "pool_windows.h"
#include "vector.h"

namespace nhwc {
namespace {

// Elements of the row of sums that a task works on at a time, so that it stays in the first-level cache.
constexpr int64_t TILE = 4096;
// Values beyond which a window is summed in double: a long sum in float loses more than torch's pairwise mean.
constexpr int64_t LONG_SUM = 64;
// Tasks below which the rows of a window are shared out as well, and how: fixed, so that the sums do not depend on threads.
constexpr int64_t FEW_TASKS = 16, SHARES = 16;

template <bool FIRST, class T, class A>
void add(const T* __restrict from, A* __restrict sum, int64_t count) {
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) sum[j] = FIRST ? static_cast<A>(load(from + j)) : sum[j] + static_cast<A>(load(from + j));
}

// Sums of the windows of one output row over share `share` of `shares` of their input rows: first over full input rows,
// then over the pixels of that. put(output, sums of its pixels, how many) takes what belongs to an output column.
template <class T, class A, class Put>
void sum_windows(const T* x, const Windows& w, const Row& at, int64_t channels, int64_t share, int64_t shares,
                 std::vector<A>& sums, const Put& put) {
    const Dimension &d = w.depth, &h = w.height, &v = w.width;
    const int64_t high = h.end[at.height] - h.start[at.height], rows = (d.end[at.depth] - d.start[at.depth]) * high;
    const int64_t top = rows * share / shares, bottom = rows * (share + 1) / shares;
    for (int64_t begin = 0, end; begin < v.out; begin = end) {
        const int64_t left = v.start[begin];
        end = begin + 1;
        while (end < v.out && (v.end[end] - left) * channels <= TILE) ++end;
        const int64_t count = (v.end[end - 1] - left) * channels;
        if (static_cast<int64_t>(sums.size()) < count) sums.resize(static_cast<size_t>(count));
        if (top == bottom) std::fill(sums.begin(), sums.end(), A(0));
        for (int64_t k = top; k < bottom; ++k) {
            const int64_t z = d.start[at.depth] + k / high, r = h.start[at.height] + k % high;
            const T* row = x + (((at.sample * d.in + z) * h.in + r) * v.in + left) * channels;
            k == top ? add<true>(row, sums.data(), count) : add<false>(row, sums.data(), count);
        }
        for (int64_t o = begin; o < end; ++o) put(o, sums.data() + (v.start[o] - left) * channels, v.end[o] - v.start[o]);
    }
}

// The sum of `count` pixels that lie side by side, divided.
template <class A, class T>
void put_average(const A* __restrict pixel, int64_t count, int64_t channels, A divisor, A* __restrict all, T* __restrict out) {
    if (count == 1) {
        NHWC_INDEPENDENT
        for (int64_t j = 0; j < channels; ++j) store(out + j, pixel[j] / divisor);
        return;
    }
    if (count == 2) {
        NHWC_INDEPENDENT
        for (int64_t j = 0; j < channels; ++j) store(out + j, (pixel[j] + pixel[channels + j]) / divisor);
        return;
    }
    std::copy(pixel, pixel + channels, all);
    for (int64_t k = 1; k < count; ++k) {
        const A* __restrict next = pixel + k * channels;
        NHWC_INDEPENDENT
        for (int64_t j = 0; j < channels; ++j) all[j] += next[j];
    }
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) store(out + j, all[j] / divisor);
}

int64_t longest(const Dimension& d) {
    int64_t found = 0;
    for (int64_t o = 0; o < d.out; ++o) found = std::max(found, d.end[o] - d.start[o]);
    return found;
}

template <class A, class T>
void average_in(const T* x, T* y, const Windows& w, int64_t samples, int64_t channels, int64_t window) {
    const Dimension &d = w.depth, &h = w.height, &v = w.width;
    const int64_t rows = samples * d.out * h.out;
    parallel_for(rows, grain_for(v.out * window * channels), [&](int64_t begin, int64_t end) {
        std::vector<A> sums, total(static_cast<size_t>(channels));
        for (int64_t task = begin; task < end; ++task) {
            const Row at(task, d.out, h.out);
            const int64_t outer = d.divisor[at.depth] * h.divisor[at.height];
            sum_windows(x, w, at, channels, 0, 1, sums, [&](int64_t o, const A* pixels, int64_t count) {
                T* out = y + (task * v.out + o) * channels;
                put_average(pixels, count, channels, static_cast<A>(outer * v.divisor[o]), total.data(), out);
            });
        }
    });
}

// For few and large windows, as in global pooling: every window's rows are shared out, and the shares added up.
template <class T>
void average_shared(const T* x, T* y, const Windows& w, int64_t samples, int64_t channels) {
    const Dimension &d = w.depth, &h = w.height, &v = w.width;
    const int64_t rows = samples * d.out * h.out, width = v.out * channels;
    std::vector<double> partial(static_cast<size_t>(rows * SHARES * width));
    parallel_for(rows * SHARES, 1, [&](int64_t begin, int64_t end) {
        std::vector<double> sums;
        for (int64_t task = begin; task < end; ++task) {
            double* into = partial.data() + task * width;
            const Row at(task / SHARES, d.out, h.out);
            sum_windows(x, w, at, channels, task % SHARES, SHARES, sums, [&](int64_t o, const double* pixels, int64_t count) {
                for (int64_t k = 0; k < count; ++k) add<false>(pixels + k * channels, into + o * channels, channels);
            });
        }
    });
    for (int64_t row = 0; row < rows; ++row) {
        double* all = partial.data() + row * SHARES * width;
        for (int64_t k = 1; k < SHARES; ++k) add<false>(all + k * width, all, width);
        const Row at(row, d.out, h.out);
        const int64_t outer = d.divisor[at.depth] * h.divisor[at.height];
        for (int64_t o = 0; o < v.out; ++o) {
            T* out = y + (row * v.out + o) * channels;
            put_average(all + o * channels, 1, channels, static_cast<double>(outer * v.divisor[o]), all, out);
        }
    }
}

template <class T>
void average_forward(const void* x, void* y, const int64_t* table, int64_t samples, int64_t channels) {
    const Windows w(table);
    const int64_t window = longest(w.depth) * longest(w.height) * longest(w.width);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (window > LONG_SUM && samples * w.depth.out * w.height.out < FEW_TASKS)
        average_shared(from, to, w, samples, channels);
    else if (window > LONG_SUM)
        average_in<double>(from, to, w, samples, channels, window);
    else
        average_in<accumulate_t<T>>(from, to, w, samples, channels, window);
}

// The sums of dy / divisor over the output rows that cover one input row, for every output column.
template <class T, class A>
void sum_covering(const T* dy, const Windows& w, const Row& at, int64_t channels, std::vector<A>& sums) {
    const Dimension &d = w.depth, &h = w.height, &v = w.width;
    bool first = true;
    for (int64_t z = d.first[at.depth]; z < d.last[at.depth]; ++z)
        for (int64_t r = h.first[at.height]; r < h.last[at.height]; ++r, first = false)
            for (int64_t o = 0; o < v.out; ++o) {
                const T* __restrict from = dy + (((at.sample * d.out + z) * h.out + r) * v.out + o) * channels;
                A* __restrict sum = sums.data() + o * channels;
                const A divisor = static_cast<A>(d.divisor[z] * h.divisor[r] * v.divisor[o]);
                if (first) {
                    NHWC_INDEPENDENT
                    for (int64_t j = 0; j < channels; ++j) sum[j] = load(from + j) / divisor;
                } else {
                    NHWC_INDEPENDENT
                    for (int64_t j = 0; j < channels; ++j) sum[j] += load(from + j) / divisor;
                }
            }
    if (first) std::fill(sums.begin(), sums.end(), A(0));
}

// Every input pixel gathers from the outputs that cover it: nothing is written twice.
template <class T>
void average_backward(const void* dy, void* dx, const int64_t* table, int64_t samples, int64_t channels) {
    using A = accumulate_t<T>;
    const Windows w(table);
    const Dimension &d = w.depth, &h = w.height, &v = w.width;
    parallel_for(samples * d.in * h.in, grain_for(v.in * channels), [&](int64_t begin, int64_t end) {
        std::vector<A> sums(static_cast<size_t>(v.out * channels)), several(static_cast<size_t>(channels));
        for (int64_t task = begin; task < end; ++task) {
            const Row at(task, d.in, h.in);
            // neighbouring rows of windows that do not overlap share their sums
            const bool same = task > begin && at.height > 0 && h.first[at.height] == h.first[at.height - 1] &&
                              h.last[at.height] == h.last[at.height - 1];
            if (!same) sum_covering(static_cast<const T*>(dy), w, at, channels, sums);
            for (int64_t i = 0; i < v.in; ++i) {
                T* __restrict out = static_cast<T*>(dx) + (task * v.in + i) * channels;
                const int64_t first = v.first[i], count = v.last[i] - first;
                const A* __restrict one = sums.data() + first * channels;
                if (count == 1) {
                    NHWC_INDEPENDENT
                    for (int64_t j = 0; j < channels; ++j) store(out + j, one[j]);
                    continue;
                }
                A* __restrict sum = several.data();
                std::fill(several.begin(), several.end(), A(0));
                for (int64_t k = 0; k < count; ++k) {
                    const A* __restrict next = one + k * channels;
                    NHWC_INDEPENDENT
                    for (int64_t j = 0; j < channels; ++j) sum[j] += next[j];
                }
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < channels; ++j) store(out + j, sum[j]);
            }
        }
    });
}

}  // namespace
}  // namespace nhwc

NHWC_EXPORT(pool_average_forward)(int dtype, const void* x, void* y, const int64_t* windows, int64_t samples,
                                  int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::average_forward, x, y, windows, samples, channels)
}

NHWC_EXPORT(pool_average_backward)(int dtype, const void* dy, void* dx, const int64_t* windows, int64_t samples,
                                   int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::average_backward, dy, dx, windows, samples, channels)
}
