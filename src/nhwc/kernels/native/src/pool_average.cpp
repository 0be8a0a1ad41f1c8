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
// Tasks below which the channels are shared out as well, and the fewest that are worth a task.
constexpr int64_t FEW_TASKS = 16, FEW_CHANNELS = 32;

// The channels [begin, end) that a task takes.
struct Channels {
    int64_t all, begin, end;
    int64_t width() const { return end - begin; }
};

template <bool FIRST, class T, class A>
void add(const T* __restrict from, A* __restrict sum, int64_t count) {
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) sum[j] = FIRST ? static_cast<A>(load(from + j)) : sum[j] + static_cast<A>(load(from + j));
}

// Adds `columns` pixels of one input row, these channels, to sums that lie side by side.
template <bool FIRST, class T, class A>
void add_pixels(const T* row, const Channels& c, int64_t columns, A* sum) {
    if (c.width() == c.all) return add<FIRST>(row, sum, columns * c.all);
    for (int64_t k = 0; k < columns; ++k) add<FIRST>(row + k * c.all + c.begin, sum + k * c.width(), c.width());
}

// One output row: first the input rows of the window are summed over full rows, then pixels within that sum.
template <class T, class A>
void average_row(const T* x, T* y, const Windows& w, const Row& at, const Channels& c, std::vector<A>& sums,
                 std::vector<A>& total) {
    const Dimension &d = w.depth, &h = w.height, &v = w.width;
    const int64_t outer = d.divisor[at.depth] * h.divisor[at.height], width = c.width();
    for (int64_t begin = 0, end; begin < v.out; begin = end) {
        const int64_t left = v.start[begin];
        end = begin + 1;
        while (end < v.out && (v.end[end] - left) * width <= TILE) ++end;
        const int64_t columns = v.end[end - 1] - left;
        if (static_cast<int64_t>(sums.size()) < columns * width) sums.resize(static_cast<size_t>(columns * width));
        bool first = true;
        for (int64_t z = d.start[at.depth]; z < d.end[at.depth]; ++z)
            for (int64_t r = h.start[at.height]; r < h.end[at.height]; ++r, first = false) {
                const T* row = x + (((at.sample * d.in + z) * h.in + r) * v.in + left) * c.all;
                first ? add_pixels<true>(row, c, columns, sums.data()) : add_pixels<false>(row, c, columns, sums.data());
            }
        for (int64_t o = begin; o < end; ++o) {
            const int64_t count = v.end[o] - v.start[o];
            const A* __restrict pixel = sums.data() + (v.start[o] - left) * width;
            A* __restrict all = total.data();
            const A divisor = static_cast<A>(outer * v.divisor[o]);
            T* __restrict out =
                y + (((at.sample * d.out + at.depth) * h.out + at.height) * v.out + o) * c.all + c.begin;
            if (count == 1) {
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < width; ++j) store(out + j, pixel[j] / divisor);
                continue;
            }
            if (count == 2) {
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < width; ++j) store(out + j, (pixel[j] + pixel[width + j]) / divisor);
                continue;
            }
            std::copy(pixel, pixel + width, all);
            for (int64_t k = 1; k < count; ++k) {
                const A* __restrict next = pixel + k * width;
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < width; ++j) all[j] += next[j];
            }
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) store(out + j, all[j] / divisor);
        }
    }
}

int64_t longest(const Dimension& d) {
    int64_t found = 0;
    for (int64_t o = 0; o < d.out; ++o) found = std::max(found, d.end[o] - d.start[o]);
    return found;
}

template <class A, class T>
void average_in(const T* x, T* y, const Windows& w, int64_t samples, int64_t channels, int64_t window) {
    const int64_t rows = samples * w.depth.out * w.height.out;
    const int64_t blocks = rows >= FEW_TASKS ? 1 : std::max<int64_t>(1, channels / FEW_CHANNELS);
    const int64_t block = (channels + blocks - 1) / blocks;
    parallel_for(rows * blocks, grain_for(w.width.out * window * block), [&](int64_t begin, int64_t end) {
        std::vector<A> sums, total(static_cast<size_t>(block));
        for (int64_t task = begin; task < end; ++task) {
            const int64_t from = task % blocks * block;
            const Channels c{channels, std::min(from, channels), std::min(channels, from + block)};
            average_row(x, y, w, Row(task / blocks, w.depth.out, w.height.out), c, sums, total);
        }
    });
}

template <class T>
void average_forward(const void* x, void* y, const int64_t* table, int64_t samples, int64_t channels) {
    const Windows w(table);
    const int64_t window = longest(w.depth) * longest(w.height) * longest(w.width);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (window > LONG_SUM)
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
