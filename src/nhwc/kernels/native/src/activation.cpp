// Backward of activations where the gradient is the same for every pixel, as a global mean sends it back.
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

template <int KIND, class T>
void run(const T* grad, int64_t sample_step, int64_t channel_step, const T* of, T* to, int64_t samples, int64_t rows,
         int64_t channels, double low, double high) {
    using A = accumulate_t<T>;
    parallel_for(samples * rows, grain_for(channels), [&](int64_t begin, int64_t end) {
        std::vector<A> own(static_cast<size_t>(channels));
        int64_t current = -1;
        for (int64_t row = begin; row < end; ++row) {
            if (row / rows != current) {
                current = row / rows;
                for (int64_t c = 0; c < channels; ++c) own[c] = load(grad + current * sample_step + c * channel_step);
            }
            const A* __restrict g = own.data();
            const T* __restrict in = of + row * channels;
            T* __restrict out = to + row * channels;
            NHWC_INDEPENDENT
            for (int64_t c = 0; c < channels; ++c)
                store(out + c, derivative<KIND>(g[c], load(in + c), static_cast<A>(low), static_cast<A>(high)));
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
