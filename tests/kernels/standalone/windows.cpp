// Pooling: averages with their gradients, and maxima with their places, over windows of three dimensions.
#include "checks.h"

namespace checks {
namespace {

struct Axis {
    int64_t in, window, step;
    int64_t out() const { return (in - window) / step + 1; }
    int64_t start(int64_t o) const { return o * step; }
};

// As pool_windows.h reads it: per dimension sizes, starts, ends, divisors, and the outputs that cover each input.
std::vector<int64_t> table_of(const Axis (&axes)[3]) {
    std::vector<int64_t> table;
    for (const Axis& each : axes) {
        std::vector<int64_t> first(static_cast<size_t>(each.in)), last(first);
        table.insert(table.end(), {each.in, each.out()});
        for (int64_t o = 0; o < each.out(); ++o) table.push_back(each.start(o));
        for (int64_t o = 0; o < each.out(); ++o) table.push_back(each.start(o) + each.window);
        for (int64_t o = 0; o < each.out(); ++o) table.push_back(each.window);
        for (int64_t o = 0; o < each.out(); ++o)
            for (int64_t i = each.start(o); i < each.start(o) + each.window; ++i) {
                if (last[i] == 0) first[i] = o;
                last[i] = o + 1;
            }
        table.insert(table.end(), first.begin(), first.end());
        table.insert(table.end(), last.begin(), last.end());
    }
    return table;
}

template <class T>
void pools(const Axis (&axes)[3], int64_t samples, int64_t channels) {
    const auto& [d, h, w] = axes;
    const int64_t plane = d.in * h.in * w.in, outputs = d.out() * h.out() * w.out(),
                  window = d.window * h.window * w.window;
    const auto x = values<T>(samples * plane * channels), dy = values<T>(samples * outputs * channels);
    const auto table = table_of(axes);
    std::vector<T> mean(dy.size()), largest(dy.size()), dx(x.size());
    std::vector<int64_t> indices(dy.size()), places(dy.size());
    std::vector<double> means(dy.size()), tops(dy.size(), -INFINITY), slopes(x.size());
    for (int64_t k = 0; k < samples * outputs; ++k) {
        const int64_t o = k % outputs, z = o / w.out() / h.out(), r = o / w.out() % h.out(), v = o % w.out();
        for (int64_t i = 0; i < window; ++i) {
            const int64_t deep = d.start(z) + i / w.window / h.window, high = h.start(r) + i / w.window % h.window;
            const int64_t pixel = (deep * h.in + high) * w.in + w.start(v) + i % w.window;
            for (int64_t c = 0; c < channels; ++c) {
                const int64_t from = (k / outputs * plane + pixel) * channels + c, to = k * channels + c;
                means[to] += at(x, from) / static_cast<double>(window);
                slopes[from] += at(dy, to) / static_cast<double>(window);
                if (at(x, from) > tops[to]) tops[to] = at(x, from), places[to] = pixel;
            }
        }
    }
    const std::string what = label<T>("", {window, d.in, h.in, w.in, channels});
    using average = void(int, const void*, void*, const int64_t*, int64_t, int64_t);
    function<average>("pool_average_forward")(code<T>(), x.data(), mean.data(), table.data(), samples, channels);
    close(mean, means, 4, "pool_average_forward" + what);
    function<average>("pool_average_backward")(code<T>(), dy.data(), dx.data(), table.data(), samples, channels);
    close(dx, slopes, 8, "pool_average_backward" + what);
    function<void(int, const void*, void*, int64_t*, const int64_t*, int64_t, int64_t)>("pool_maximum")(
        code<T>(), x.data(), largest.data(), indices.data(), table.data(), samples, channels);
    close(largest, tops, 0, "pool_maximum" + what);
    same(indices, places, "places of pool_maximum" + what);

    std::vector<int64_t> outside(1);
    std::vector<T> scattered(x.size()), gathered(dy.size());
    function<void(int, const void*, const int64_t*, void*, int64_t*, int64_t, int64_t, int64_t, int64_t)>(
        "pool_gather")(code<T>(), x.data(), indices.data(), gathered.data(), outside.data(), samples, outputs, plane,
                       channels);
    close(gathered, tops, 0, "pool_gather" + what);
    std::vector<double> sums(x.size());
    for (int64_t k = 0; k < samples * outputs; ++k)
        for (int64_t c = 0; c < channels; ++c)
            sums[(k / outputs * plane + places[k * channels + c]) * channels + c] += at(dy, k * channels + c);
    function<void(int, int, const void*, const int64_t*, void*, int64_t*, int64_t, int64_t, int64_t, int64_t)>(
        "pool_scatter")(code<T>(), 1, dy.data(), indices.data(), scattered.data(), outside.data(), samples, outputs,
                        plane, channels);
    close(scattered, sums, 4, "pool_scatter" + what);
    judge(outside[0] == 0, "places inside" + what);
}

template <class T>
void all() {
    for (const int64_t channels : {1, 6, 33, 70}) {
        pools<T>({{5, 2, 2}, {7, 2, 2}, {8, 2, 2}}, 2, channels);
        pools<T>({{4, 3, 1}, {6, 3, 2}, {9, 3, 1}}, 2, channels);
        pools<T>({{1, 1, 1}, {12, 12, 1}, {11, 11, 1}}, 1, channels);
    }
}

}  // namespace

void windows() {
    all<float>();
    all<double>();
    all<nhwc::bfloat16>();
    all<_Float16>();
}

}  // namespace checks
