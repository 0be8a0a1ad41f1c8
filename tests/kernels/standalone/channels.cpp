// Kernels that compute over channels or their statistics: softmax, group norm, activations' gradients.
#include "checks.h"

namespace checks {
namespace {

template <class T>
void softmax(int64_t rows, int64_t channels, int logarithm) {
    auto x = values<T>(rows * channels);
    // one row with a NaN, one with nothing but a finite value
    if (rows > 2 && channels > 1) {
        nhwc::store(&x[0], std::numeric_limits<nhwc::accumulate_t<T>>::quiet_NaN());
        for (int64_t c = 1; c < channels; ++c)
            nhwc::store(&x[channels + c], -std::numeric_limits<nhwc::accumulate_t<T>>::infinity());
    }
    const auto grad = values<T>(rows * channels);
    std::vector<T> y(x.size()), dx(x.size());
    function<void(int, const void*, void*, int, int64_t, int64_t)>("softmax_forward")(code<T>(), x.data(), y.data(),
                                                                                      logarithm, rows, channels);
    function<void(int, const void*, const void*, void*, int, int64_t, int64_t)>("softmax_backward")(
        code<T>(), grad.data(), y.data(), dx.data(), logarithm, rows, channels);
    for (int64_t r = 0; r < rows; ++r) {
        double top = -INFINITY, sum = 0.0, dot = 0.0;
        for (int64_t c = 0; c < channels; ++c) top = std::max(top, at(x, r * channels + c));
        for (int64_t c = 0; c < channels; ++c) sum += std::exp(at(x, r * channels + c) - top);
        for (int64_t c = 0; c < channels; ++c)
            dot += at(grad, r * channels + c) * (logarithm ? 1.0 : at(y, r * channels + c));
        std::vector<double> wanted, slopes;
        std::vector<T> found, gradient;
        for (int64_t c = 0; c < channels; ++c) {
            const int64_t place = r * channels + c;
            const double value = at(x, place) - top;
            if (logarithm && std::isinf(value)) continue;  // minus infinity, which no error can be measured from
            wanted.push_back(logarithm ? value - std::log(sum) : std::exp(value) / sum);
            const double own = at(y, place), g = at(grad, place);
            slopes.push_back(logarithm ? g - std::exp(own) * dot : (g - dot) * own);
            found.push_back(y[place]);
            gradient.push_back(dx[place]);
        }
        const std::string what = label<T>(logarithm ? "log_softmax" : "softmax", {rows, channels, r});
        close(found, wanted, 8, what);
        // an error of the sums weighs as much as the largest gradient
        slopes.push_back(2.0 + std::abs(dot));
        gradient.push_back(T());
        nhwc::store(&gradient.back(), static_cast<nhwc::accumulate_t<T>>(2.0 + std::abs(dot)));
        if (!std::isnan(dot)) close(gradient, slopes, 8, what + ", gradient");
    }
}

template <class T>
void group_norm(int64_t samples, int64_t rows, int64_t channels, int64_t groups) {
    using A = nhwc::accumulate_t<T>;
    constexpr double EPS = 1e-5;
    const auto x = values<T>(samples * rows * channels), weight = values<T>(channels), bias = values<T>(channels);
    std::vector<T> y(x.size());
    std::vector<A> mean(static_cast<size_t>(samples * groups)), rstd(mean);
    function<void(int, int, const void*, const void*, const void*, void*, void*, void*, int64_t, int64_t, int64_t,
                  int64_t, double)>("group_norm_forward")(code<T>(), code<T>(), x.data(), weight.data(), bias.data(),
                                                          y.data(), mean.data(), rstd.data(), samples, rows, channels,
                                                          groups, EPS);
    const int64_t width = channels / groups;
    std::vector<double> wanted(x.size());
    for (int64_t n = 0; n < samples; ++n)
        for (int64_t g = 0; g < groups; ++g) {
            const auto each = [&](const auto& visit) {
                for (int64_t r = 0; r < rows; ++r)
                    for (int64_t c = g * width; c < (g + 1) * width; ++c) visit((n * rows + r) * channels + c, c);
            };
            const double count = static_cast<double>(rows * width);
            double centre = 0.0, spread = 0.0;
            each([&](int64_t place, int64_t) { centre += at(x, place) / count; });
            each([&](int64_t place, int64_t) { spread += (at(x, place) - centre) * (at(x, place) - centre) / count; });
            each([&](int64_t place, int64_t c) {
                wanted[place] = (at(x, place) - centre) / std::sqrt(spread + EPS) * at(weight, c) + at(bias, c);
            });
        }
    // in float64 the plain sum's own error shows
    close(y, wanted, std::is_same<T, double>::value ? 64 : 8,
          label<T>("group_norm", {samples, rows, channels, groups}));
}

double slope(int kind, double g, double of, double low, double high) {
    const double s = 1.0 / (1.0 + std::exp(-of));
    switch (kind) {
        case 0:
            return of <= low ? 0.0 : g;
        case 1:
            return of > low && of < high ? g : 0.0;
        case 2:
            return of > 0.0 ? g : g * low;
        case 3:
            return of <= -3.0 ? 0.0 : of >= 3.0 ? g : g * (of / 3.0 + 0.5);
        case 4:
            return of > -3.0 && of < 3.0 ? g / 6.0 : 0.0;
        case 5:
            return g * s * (1.0 + of * (1.0 - s));
        case 6:
            return g * (1.0 - of) * of;
        default:
            return g * (1.0 - of * of);
    }
}

template <class T>
void activation(int kind, int64_t channels) {
    constexpr int64_t SAMPLES = 2, ROWS = 9;
    constexpr double LOW = -0.5, HIGH = 0.75;
    const auto grad = values<T>(SAMPLES * channels), of = values<T>(SAMPLES * ROWS * channels);
    std::vector<T> to(of.size());
    std::vector<double> wanted;
    function<void(int, int, const void*, int64_t, int64_t, const void*, void*, int64_t, int64_t, int64_t, double,
                  double)>("activation_backward")(code<T>(), kind, grad.data(), channels, 1, of.data(), to.data(),
                                                  SAMPLES, ROWS, channels, LOW, HIGH);
    for (int64_t place = 0; place < SAMPLES * ROWS * channels; ++place) {
        const double g = at(grad, place / (ROWS * channels) * channels + place % channels);
        wanted.push_back(slope(kind, g, at(of, place), LOW, HIGH));
    }
    close(to, wanted, 4, label<T>("activation", {kind, channels}));
}

template <class T>
void all() {
    for (const int64_t channels : {1, 3, 16, 17, 48, 49, 200})
        for (const int64_t rows : {1, 5, 40})
            for (const int logarithm : {0, 1}) softmax<T>(rows, channels, logarithm);
    for (const int64_t channels : {4, 6, 96})
        for (const int64_t rows : {3, 35, 1500})
            for (const int64_t groups : {int64_t{2}, channels}) group_norm<T>(2, rows, channels, groups);
    for (int kind = 0; kind < 8; ++kind)
        for (const int64_t channels : {1, 7, 64}) activation<T>(kind, channels);
}

}  // namespace

void channels() {
    all<float>();
    all<double>();
    all<nhwc::bfloat16>();
    all<_Float16>();
}

}  // namespace checks
