// Group norm over channels-last rows: x is (samples, rows, channels); instance norm has as many groups as channels.
#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// Values per task: set by the shape alone, so that the sums do not depend on the number of threads.
constexpr int64_t VALUES_PER_TASK = 1 << 15;
// Values that a float accumulator takes before its sum goes on in double.
constexpr int64_t ROWS_PER_FLUSH = 32;
// Rows that are added up before they reach their sums in memory.
constexpr int ROWS_AT_ONCE = 4;
constexpr std::integral_constant<int, 1> ONE_ROW{};
// Rows whose mean the sums of a sample are taken about.
constexpr int64_t PIVOT_ROWS = 16;
// Narrow channels are taken several rows at a time, so that a vector is full.
constexpr int64_t WIDTH = 512;

struct Shape {
    int64_t samples, rows, channels, groups;
    int64_t rows_per_task() const { return std::max<int64_t>(ROWS_PER_FLUSH, VALUES_PER_TASK / channels); }
    int64_t tasks_per_sample() const { return (rows + rows_per_task() - 1) / rows_per_task(); }
    int64_t repeat() const { return channels >= WIDTH ? 1 : WIDTH / channels; }
};

// Per channel: the sums of term(row element) pairs over rows [first, last) of one sample, added to first_sum,
// second_sum.
template <class A, class Terms>
void sum_rows(const Shape& s, int64_t first, int64_t last, const Terms& terms, double* first_sum, double* second_sum) {
    const int64_t repeat = s.repeat(), width = s.channels * repeat;
    std::vector<A> buffer(static_cast<size_t>(2 * width));
    A* __restrict one = buffer.data();
    A* __restrict two = one + width;
    int64_t row = first;
    while (row < last) {
        std::fill(buffer.begin(), buffer.end(), A(0));
        const int64_t stop = std::min(last, row + ROWS_PER_FLUSH * repeat);
        for (; row + ROWS_AT_ONCE * repeat <= stop; row += ROWS_AT_ONCE * repeat)
            terms(std::integral_constant<int, ROWS_AT_ONCE>{}, row * s.channels, width, one, two);
        for (; row + repeat <= stop; row += repeat) terms(ONE_ROW, row * s.channels, width, one, two);
        for (int64_t lane = 0; row < stop; ++row, ++lane)
            terms(ONE_ROW, row * s.channels, s.channels, one + lane * s.channels, two + lane * s.channels);
        for (int64_t k = 0; k < repeat; ++k)
            for (int64_t c = 0; c < s.channels; ++c) {
                first_sum[c] += static_cast<double>(one[k * s.channels + c]);
                second_sum[c] += static_cast<double>(two[k * s.channels + c]);
            }
    }
}

// What stays in a core's cache, and in the cache that the cores share, from the pass that sums to the one that writes.
constexpr int64_t CORE_BYTES = 1 << 20;
constexpr int64_t SHARED_BYTES = 1 << 24;

// body(first sample, last sample): sample by sample in parallel where a sample stays in a core's cache, else as many at
// a time as stay in the shared one.
template <class Body>
void for_samples(const Shape& s, int64_t sample_bytes, const Body& body) {
    if (s.samples > 1 && sample_bytes <= CORE_BYTES) {
        parallel_for(s.samples, 1, [&](int64_t begin, int64_t end) {
            for (int64_t sample = begin; sample < end; ++sample) body(sample, sample + 1);
        });
        return;
    }
    const int64_t batch = std::max<int64_t>(1, SHARED_BYTES / sample_bytes);
    for (int64_t first = 0; first < s.samples; first += batch) body(first, std::min(s.samples, first + batch));
}

// Runs sum_rows over samples [from, to) in parallel; sums is (samples, 2, channels).
template <class A, class TermsOf>
void sum_samples(const Shape& s, int64_t from, int64_t to, const TermsOf& terms_of, double* sums) {
    const int64_t per_sample = s.tasks_per_sample(), tasks = (to - from) * per_sample, both = 2 * s.channels;
    std::vector<double> partial(static_cast<size_t>(tasks * both), 0.0);
    parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = from + task / per_sample, first = (task % per_sample) * s.rows_per_task();
            double* into = partial.data() + task * both;
            sum_rows<A>(s, first, std::min(s.rows, first + s.rows_per_task()), terms_of(sample), into,
                        into + s.channels);
        }
    });
    for (int64_t task = 0; task < tasks; ++task)
        for (int64_t j = 0; j < both; ++j) sums[(from + task / per_sample) * both + j] += partial[task * both + j];
}

// A value per channel, repeated so that it lines up with `repeat` rows at a time.
template <class A>
std::vector<A> repeated(const Shape& s, const std::vector<A>& per_channel) {
    std::vector<A> wide;
    wide.reserve(static_cast<size_t>(s.channels * s.repeat()));
    for (int64_t k = 0; k < s.repeat(); ++k) wide.insert(wide.end(), per_channel.begin(), per_channel.end());
    return wide;
}

// body(offset, width) over the rows of samples [from, to) in parallel, what was summed last first, since it is still in
// cache; the per-sample state comes from prepare(sample).
template <class Prepare>
void for_rows(const Shape& s, int64_t from, int64_t to, const Prepare& prepare) {
    const int64_t per_sample = s.tasks_per_sample(), repeat = s.repeat();
    parallel_for((to - from) * per_sample, 1, [&](int64_t begin, int64_t end) {
        int64_t current = -1;
        std::unique_ptr<decltype(prepare(0))> body;
        for (int64_t task = end - 1; task >= begin; --task) {
            const int64_t sample = from + task / per_sample, first = (task % per_sample) * s.rows_per_task();
            if (sample != current) body = std::make_unique<decltype(prepare(0))>(prepare(current = sample));
            const int64_t last = std::min(s.rows, first + s.rows_per_task());
            int64_t row = first;
            for (; row + repeat <= last; row += repeat) (*body)(row* s.channels, s.channels* repeat);
            for (; row < last; ++row) (*body)(row* s.channels, s.channels);
        }
    });
}

// Per channel the mean of some rows all over the sample. Sums about it lose no digits to a large mean.
template <class T>
void pivot_of(const T* from, const Shape& s, accumulate_t<T>* pivot) {
    const int64_t count = std::min(s.rows, PIVOT_ROWS);
    std::fill(pivot, pivot + s.channels, accumulate_t<T>(0));
    for (int64_t k = 0; k < count; ++k) {
        const T* row = from + k * (s.rows / count) * s.channels;
        for (int64_t c = 0; c < s.channels; ++c) pivot[c] += load(row + c) / static_cast<accumulate_t<T>>(count);
    }
}

template <class A, class P>
A affine_at(const P* values, int64_t channel, A otherwise) {
    return values == nullptr ? otherwise : static_cast<A>(load(values + channel));
}

// y = (x - mean) * rstd * weight + bias; mean and rstd are (samples, groups), in double for float64 and float
// otherwise. P is the type of weight and bias.
template <class T, class P>
void forward(const T* x, const P* weight, const P* bias, T* y, accumulate_t<T>* mean, accumulate_t<T>* rstd,
             const Shape& s, double eps) {
    using A = accumulate_t<T>;
    const int64_t sample_size = s.rows * s.channels, per_group = s.channels / s.groups;
    std::vector<A> pivots(static_cast<size_t>(s.samples * s.channels));
    std::vector<double> sums(static_cast<size_t>(2 * s.samples * s.channels), 0.0);
    for_samples(s, sample_size * static_cast<int64_t>(sizeof(T)), [&](int64_t from_sample, int64_t to_sample) {
        for (int64_t sample = from_sample; sample < to_sample; ++sample)
            pivot_of(x + sample * sample_size, s, pivots.data() + sample * s.channels);
        const auto terms = [&](int64_t sample) {
            const T* from = x + sample * sample_size;
            const A* own = pivots.data() + sample * s.channels;
            const std::vector<A> pivot(own, own + s.channels);
            return [from, about = repeated(s, pivot)](auto lines, int64_t offset, int64_t width, A* __restrict one,
                                                      A* __restrict two) {
                const T* __restrict row = from + offset;
                const A* __restrict p = about.data();
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < width; ++j) {
                    A first(0), second(0);
                    for (int k = 0; k < decltype(lines)::value; ++k) {
                        const A d = load(row + k * width + j) - p[j];
                        first += d;
                        second += d * d;
                    }
                    one[j] += first;
                    two[j] += second;
                }
            };
        };
        sum_samples<A>(s, from_sample, to_sample, terms, sums.data());
        const double rows = static_cast<double>(s.rows), count = rows * static_cast<double>(per_group);
        for (int64_t sample = from_sample; sample < to_sample; ++sample) {
            const double* sum = sums.data() + sample * 2 * s.channels;
            const A* pivot = pivots.data() + sample * s.channels;
            for (int64_t g = 0; g < s.groups; ++g) {
                double centre = 0.0, spread = 0.0;
                for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c)
                    centre += (static_cast<double>(pivot[c]) + sum[c] / rows) / per_group;
                for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) {
                    const double own = static_cast<double>(pivot[c]) + sum[c] / rows;
                    spread += sum[s.channels + c] - sum[c] * sum[c] / rows + rows * (own - centre) * (own - centre);
                }
                const double variance = std::isnan(spread) ? spread : std::max(spread / count, 0.0);
                mean[sample * s.groups + g] = static_cast<A>(centre);
                rstd[sample * s.groups + g] = static_cast<A>(1.0 / std::sqrt(variance + eps));
            }
        }
        for_rows(s, from_sample, to_sample, [&](int64_t sample) {
            std::vector<A> centre(static_cast<size_t>(s.channels)), scale(centre), shift(centre);
            for (int64_t c = 0; c < s.channels; ++c) {
                const int64_t g = sample * s.groups + c / per_group;
                centre[c] = mean[g];
                scale[c] = rstd[g] * affine_at(weight, c, A(1));
                shift[c] = affine_at(bias, c, A(0));
            }
            return [from = x + sample * sample_size, to = y + sample * sample_size, m = repeated(s, centre),
                    a = repeated(s, scale), b = repeated(s, shift)](int64_t offset, int64_t width) {
                const T* __restrict in = from + offset;
                T* __restrict out = to + offset;
                const A* __restrict mp = m.data(), * __restrict ap = a.data(), * __restrict bp = b.data();
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < width; ++j) store(out + j, (load(in + j) - mp[j]) * ap[j] + bp[j]);
            };
        });
    });
}

// dx, dweight and dbias of forward, each left out where its pointer is null; dweight and dbias are of type P.
template <class T, class P>
void backward(const T* dy, const T* x, const P* weight, const accumulate_t<T>* mean, const accumulate_t<T>* rstd, T* dx,
              P* dweight, P* dbias, const Shape& s) {
    using A = accumulate_t<T>;
    const int64_t sample_size = s.rows * s.channels, per_group = s.channels / s.groups;
    std::vector<double> sums(static_cast<size_t>(2 * s.samples * s.channels), 0.0);
    const auto terms = [&](int64_t sample) {
        std::vector<A> centre(static_cast<size_t>(s.channels));
        for (int64_t c = 0; c < s.channels; ++c) centre[c] = mean[sample * s.groups + c / per_group];
        return [grad = dy + sample * sample_size, from = x + sample * sample_size, m = repeated(s, centre)](
                   auto lines, int64_t offset, int64_t width, A* __restrict one, A* __restrict two) {
            const T* __restrict g = grad + offset, * __restrict row = from + offset;
            const A* __restrict mp = m.data();
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) {
                A first(0), second(0);
                for (int k = 0; k < decltype(lines)::value; ++k) {
                    const A d = load(g + k * width + j);
                    first += d;
                    second += d * (load(row + k * width + j) - mp[j]);
                }
                one[j] += first;
                two[j] += second;
            }
        };
    };
    const auto at = [&](int64_t sample, int64_t c) { return sums.data() + sample * 2 * s.channels + c; };
    const double count = static_cast<double>(s.rows) * static_cast<double>(per_group);
    for_samples(s, 2 * sample_size * static_cast<int64_t>(sizeof(T)), [&](int64_t from_sample, int64_t to_sample) {
        sum_samples<A>(s, from_sample, to_sample, terms, sums.data());
        if (dx == nullptr) return;
        for_rows(s, from_sample, to_sample, [&](int64_t sample) {
            std::vector<A> centre(static_cast<size_t>(s.channels)), scale(centre), slope(centre), level(centre);
            for (int64_t g = 0; g < s.groups; ++g) {
                double weighted = 0.0, moment = 0.0;
                for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) {
                    const double w = static_cast<double>(affine_at(weight, c, A(1)));
                    weighted += w * *at(sample, c);
                    moment += w * at(sample, c)[s.channels];
                }
                const double r = static_cast<double>(rstd[sample * s.groups + g]);
                for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) {
                    centre[c] = mean[sample * s.groups + g];
                    scale[c] = static_cast<A>(r) * affine_at(weight, c, A(1));
                    slope[c] = static_cast<A>(-r * r * r * moment / count);
                    level[c] = static_cast<A>(-r * weighted / count);
                }
            }
            return [grad = dy + sample * sample_size, from = x + sample * sample_size, to = dx + sample * sample_size,
                    m = repeated(s, centre), a = repeated(s, scale), k = repeated(s, slope),
                    b = repeated(s, level)](int64_t offset, int64_t width) {
                const T* __restrict g = grad + offset, * __restrict in = from + offset;
                T* __restrict out = to + offset;
                const A* __restrict mp = m.data(), * __restrict ap = a.data(), * __restrict kp = k.data(), * __restrict bp = b.data();
                NHWC_INDEPENDENT
                for (int64_t j = 0; j < width; ++j)
                    store(out + j, load(g + j) * ap[j] + (load(in + j) - mp[j]) * kp[j] + bp[j]);
            };
        });
    });
    for (int64_t c = 0; c < s.channels; ++c) {
        double scale = 0.0, shift = 0.0;
        for (int64_t sample = 0; sample < s.samples; ++sample) {
            shift += *at(sample, c);
            scale += at(sample, c)[s.channels] * static_cast<double>(rstd[sample * s.groups + c / per_group]);
        }
        if (dweight != nullptr) store(dweight + c, static_cast<accumulate_t<P>>(scale));
        if (dbias != nullptr) store(dbias + c, static_cast<accumulate_t<P>>(shift));
    }
}

template <class T>
void any_forward(int affine, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd,
                 const Shape& s, double eps) {
    using A = accumulate_t<T>;
    if (affine == FLOAT32 && !std::is_same<T, float>::value && !std::is_same<T, double>::value)
        forward(static_cast<const T*>(x), static_cast<const float*>(weight), static_cast<const float*>(bias),
                static_cast<T*>(y), static_cast<A*>(mean), static_cast<A*>(rstd), s, eps);
    else
        forward(static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(bias),
                static_cast<T*>(y), static_cast<A*>(mean), static_cast<A*>(rstd), s, eps);
}

template <class T>
void any_backward(int affine, const void* dy, const void* x, const void* weight, const void* mean, const void* rstd,
                  void* dx, void* dweight, void* dbias, const Shape& s) {
    using A = accumulate_t<T>;
    const auto call = [&](auto* parameter) {
        using P = std::remove_pointer_t<decltype(parameter)>;
        backward(static_cast<const T*>(dy), static_cast<const T*>(x), static_cast<const P*>(weight),
                 static_cast<const A*>(mean), static_cast<const A*>(rstd), static_cast<T*>(dx),
                 static_cast<P*>(dweight), static_cast<P*>(dbias), s);
    };
    if (affine == FLOAT32 && !std::is_same<T, float>::value && !std::is_same<T, double>::value)
        call(static_cast<float*>(nullptr));
    else
        call(static_cast<T*>(nullptr));
}

}  // namespace
}  // namespace nhwc

// affine: the dtype of weight and bias, that of x or float32. Null weight: 1; null bias: 0.
NHWC_EXPORT(group_norm_forward)(int dtype, int affine, const void* x, const void* weight, const void* bias, void* y,
                                void* mean, void* rstd, int64_t samples, int64_t rows, int64_t channels, int64_t groups,
                                double eps) {
    const nhwc::Shape s{samples, rows, channels, groups};
    NHWC_FOR_DTYPE(dtype, nhwc::any_forward, affine, x, weight, bias, y, mean, rstd, s, eps)
}

NHWC_EXPORT(group_norm_backward)(int dtype, int affine, const void* dy, const void* x, const void* weight,
                                 const void* mean, const void* rstd, void* dx, void* dweight, void* dbias,
                                 int64_t samples, int64_t rows, int64_t channels, int64_t groups) {
    const nhwc::Shape s{samples, rows, channels, groups};
    NHWC_FOR_DTYPE(dtype, nhwc::any_backward, affine, dy, x, weight, mean, rstd, dx, dweight, dbias, s)
}

// Batch norm in training: group norm of one sample, whose rows are the pixels of all images. The running mean and
// variance, where they are not null, move on towards the mean and the unbiased variance; all are of type dtype.
NHWC_EXPORT(batch_norm_forward)(int dtype, const void* x, const void* weight, const void* bias, void* running_mean,
                                void* running_var, void* y, void* mean, void* rstd, int64_t rows, int64_t channels,
                                double momentum, double eps) {
    const nhwc::Shape s{1, rows, channels, channels};
    NHWC_FOR_DTYPE(dtype, nhwc::any_forward, dtype, x, weight, bias, y, mean, rstd, s, eps)
    const auto update = [&](auto* type) {
        using A = std::remove_pointer_t<decltype(type)>;
        const double unbiased = static_cast<double>(rows) / static_cast<double>(rows - 1);
        for (int64_t c = 0; c < channels; ++c) {
            const double deviation = static_cast<double>(static_cast<const A*>(rstd)[c]);
            const double variance = (1.0 / (deviation * deviation) - eps) * unbiased;
            const double centre = static_cast<double>(static_cast<const A*>(mean)[c]);
            if (running_mean != nullptr) {
                A& own = static_cast<A*>(running_mean)[c];
                own = static_cast<A>((1.0 - momentum) * static_cast<double>(own) + momentum * centre);
            }
            if (running_var != nullptr) {
                A& own = static_cast<A*>(running_var)[c];
                own = static_cast<A>((1.0 - momentum) * static_cast<double>(own) + momentum * variance);
            }
        }
    };
    if (dtype == nhwc::FLOAT64)
        update(static_cast<double*>(nullptr));
    else
        update(static_cast<float*>(nullptr));
}
