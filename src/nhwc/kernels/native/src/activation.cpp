// Backward of activations where the gradient is the same for every pixel, as a global mean sends it back.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "exponential.h"
#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// The codes by which activation.py names them; `of` is the input, for sigmoid and tanh the result.
enum : int { THRESHOLD, HARDTANH, LEAKY_RELU, HARDSWISH, HARDSIGMOID, SILU, SIGMOID, TANH };

template <int KIND, class A>
inline A derivative(A g, A of, A low, A high) {
    if constexpr (KIND == THRESHOLD) return of <= low ? A(0) : g;
    if constexpr (KIND == HARDTANH) return of > low && of < high ? g : A(0);
    if constexpr (KIND == LEAKY_RELU) return of > A(0) ? g : g * low;
    if constexpr (KIND == HARDSWISH) return of <= A(-3) ? A(0) : (of >= A(3) ? g : g * (of / A(3) + A(0.5)));
    if constexpr (KIND == HARDSIGMOID) return of > A(-3) && of < A(3) ? g / A(6) : A(0);
    if constexpr (KIND == SILU) {
        const A s = A(1) / (A(1) + exponential(-of));
        return g * s * (A(1) + of * (A(1) - s));
    }
    if constexpr (KIND == SIGMOID) return g * (A(1) - of) * of;
    return g * (A(1) - of * of);
}

// Narrow channels are taken several pixels at a time, and so many values by a task.
constexpr int64_t WIDTH = 512;
constexpr int64_t VALUES_PER_TASK = 1 << 15;

template <int KIND, class T>
void run(const T* grad, int64_t sample_step, int64_t channel_step, const T* of, T* to, int64_t samples, int64_t rows,
         int64_t channels, double low, double high) {
    using A = accumulate_t<T>;
    const int64_t repeat = channels >= WIDTH ? 1 : WIDTH / channels;
    const int64_t rows_per_task = std::max<int64_t>(1, VALUES_PER_TASK / (channels * repeat)) * repeat;
    const int64_t per_sample = (rows + rows_per_task - 1) / rows_per_task;
    parallel_for(samples * per_sample, 1, [&](int64_t begin, int64_t end) {
        std::vector<A> own(static_cast<size_t>(channels * repeat));
        int64_t current = -1;
        for (int64_t task = begin; task < end; ++task) {
            if (task / per_sample != current) {
                current = task / per_sample;
                for (int64_t j = 0; j < channels * repeat; ++j)
                    own[j] = load(grad + current * sample_step + j % channels * channel_step);
            }
            const int64_t first = task % per_sample * rows_per_task, last = std::min(rows, first + rows_per_task);
            const A* __restrict g = own.data();
            for (int64_t row = first; row < last; row += repeat) {
                const T* __restrict in = of + (current * rows + row) * channels;
                T* __restrict out = to + (current * rows + row) * channels;
                const int64_t width = std::min(repeat, last - row) * channels;
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < width; ++j)
                    store(out + j, derivative<KIND>(g[j], load(in + j), static_cast<A>(low), static_cast<A>(high)));
            }
        }
    });
}

template <class T>
void backward(int kind, const void* grad, int64_t sample_step, int64_t channel_step, const void* of, void* to,
              int64_t samples, int64_t rows, int64_t channels, double low, double high) {
    const auto call = [&](auto constant) {
        run<decltype(constant)::value>(static_cast<const T*>(grad), sample_step, channel_step,
                                       static_cast<const T*>(of), static_cast<T*>(to), samples, rows, channels, low,
                                       high);
    };
    switch (kind) {
        case THRESHOLD:
            return call(std::integral_constant<int, THRESHOLD>{});
        case HARDTANH:
            return call(std::integral_constant<int, HARDTANH>{});
        case LEAKY_RELU:
            return call(std::integral_constant<int, LEAKY_RELU>{});
        case HARDSWISH:
            return call(std::integral_constant<int, HARDSWISH>{});
        case HARDSIGMOID:
            return call(std::integral_constant<int, HARDSIGMOID>{});
        case SILU:
            return call(std::integral_constant<int, SILU>{});
        case SIGMOID:
            return call(std::integral_constant<int, SIGMOID>{});
        default:
            return call(std::integral_constant<int, TANH>{});
    }
}

}  // namespace
}  // namespace nhwc

// grad[n * sample_step + c * channel_step] is the gradient of every pixel; low, high: the activation's own constants.
NHWC_EXPORT(activation_backward)(int dtype, int kind, const void* grad, int64_t sample_step, int64_t channel_step,
                                 const void* of, void* to, int64_t samples, int64_t rows, int64_t channels, double low,
                                 double high) {
    NHWC_FOR_DTYPE(dtype, nhwc::backward, kind, grad, sample_step, channel_step, of, to, samples, rows, channels, low,
                   high)
}
