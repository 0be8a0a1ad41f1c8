// Softmax and log-softmax over the channels of channels-last rows, forward and backward.
#include <cmath>
#include <limits>
#include <vector>

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

// A NaN spoils the sum, and with it the whole row, as in torch.
template <class T>
void forward(const void* source, void* target, int logarithm, int64_t rows, int64_t channels) {
    using A = accumulate_t<T>;
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
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
