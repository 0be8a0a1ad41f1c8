// grid_sample and roi_align: bilinear samples of an image, zero outside it.
#include "checks.h"

namespace checks {
namespace {

constexpr int64_t SAMPLES = 2, HIGH = 6, WIDE = 5;

// Channel c of image `sample` at a point between pixels; neighbours outside count as zero.
template <class T>
double bilinear(const std::vector<T>& x, int64_t sample, int64_t channels, int64_t c, double row, double column) {
    double sum = 0.0;
    for (const int64_t down : {0, 1})
        for (const int64_t across : {0, 1}) {
            const int64_t r = static_cast<int64_t>(std::floor(row)) + down,
                          k = static_cast<int64_t>(std::floor(column)) + across;
            if (r < 0 || r >= HIGH || k < 0 || k >= WIDE) continue;
            const double weight =
                (1.0 - std::abs(row - static_cast<double>(r))) * (1.0 - std::abs(column - static_cast<double>(k)));
            sum += weight * at(x, ((sample * HIGH + r) * WIDE + k) * channels + c);
        }
    return sum;
}

template <class T>
void grid_sample(int64_t channels, bool align) {
    constexpr int64_t DOWN = 4, ACROSS = 3;
    const auto x = values<T>(SAMPLES * HIGH * WIDE * channels);
    std::vector<T> grid(static_cast<size_t>(SAMPLES * DOWN * ACROSS * 2)),
        y(static_cast<size_t>(SAMPLES * DOWN * ACROSS * channels));
    // in eighths, which every type holds
    for (T& each : grid) nhwc::store(&each, static_cast<nhwc::accumulate_t<T>>(std::round(drawn() * 5.0) / 8.0));
    const int64_t sizes[] = {SAMPLES, channels,          2, 1,          HIGH, WIDE, 1, DOWN,
                             ACROSS,  DOWN * ACROSS * 2, 0, ACROSS * 2, 2,    1};
    function<void(int, const void*, const void*, void*, const int64_t*, int64_t, int64_t, int64_t)>(
        "grid_sample_forward")(code<T>(), x.data(), grid.data(), y.data(), sizes, 0, 0, align);
    std::vector<double> wanted;
    for (int64_t point = 0; point < SAMPLES * DOWN * ACROSS; ++point) {
        const auto pixel = [&](double at, double size) {
            return align ? (at + 1) / 2 * (size - 1) : ((at + 1) * size - 1) / 2;
        };
        const double column = pixel(at(grid, point * 2), WIDE), row = pixel(at(grid, point * 2 + 1), HIGH);
        for (int64_t c = 0; c < channels; ++c)
            wanted.push_back(bilinear(x, point / (DOWN * ACROSS), channels, c, row, column));
    }
    close(y, wanted, 16, label<T>("grid_sample", {channels, align}));
}

template <class T>
void roi_align(int64_t channels) {
    constexpr int64_t REGIONS = 3, BINS = 2, TAKEN = 2;
    const double corners[REGIONS][5] = {{1, 0.75, 1.25, 3.5, 4.0}, {0, 0.25, 0.25, 2.0, 3.75}, {1, 1.0, 0.5, 4.0, 4.5}};
    const auto x = values<T>(SAMPLES * HIGH * WIDE * channels);
    std::vector<T> regions(REGIONS * 5), y(static_cast<size_t>(REGIONS * BINS * BINS * channels));
    for (int64_t k = 0; k < REGIONS * 5; ++k)
        nhwc::store(&regions[k], static_cast<nhwc::accumulate_t<T>>(corners[k / 5][k % 5]));
    const int64_t sizes[] = {SAMPLES, channels, HIGH, WIDE, REGIONS, 5, 1, BINS, BINS, TAKEN, 1};
    function<void(int, const void*, const void*, void*, const int64_t*, double)>("roi_align_forward")(
        code<T>(), x.data(), regions.data(), y.data(), sizes, 1.0);
    std::vector<double> wanted;
    for (const auto& [sample, left, top, right, bottom] : corners)
        for (int64_t bin = 0; bin < BINS * BINS; ++bin)
            for (int64_t c = 0; c < channels; ++c) {
                const double high = (bottom - top) / BINS, wide = (right - left) / BINS;
                double sum = 0.0;
                for (int64_t k = 0; k < TAKEN * TAKEN; ++k) {
                    const double row = top - 0.5 + static_cast<double>(bin / BINS) * high +
                                       (static_cast<double>(k / TAKEN) + 0.5) * high / TAKEN;
                    const double column = left - 0.5 + static_cast<double>(bin % BINS) * wide +
                                          (static_cast<double>(k % TAKEN) + 0.5) * wide / TAKEN;
                    // what lies less than a pixel outside counts as the edge
                    sum += bilinear(x, static_cast<int64_t>(sample), channels, c, std::max(row, 0.0),
                                    std::max(column, 0.0));
                }
                wanted.push_back(sum / (TAKEN * TAKEN));
            }
    close(y, wanted, 16, label<T>("roi_align", {channels}));
}

template <class T>
void all() {
    for (const int64_t channels : {1, 5, 17, 64}) {
        grid_sample<T>(channels, false);
        grid_sample<T>(channels, true);
        roi_align<T>(channels);
    }
}

}  // namespace

void sampling() {
    all<float>();
    all<double>();
    all<nhwc::bfloat16>();
    all<_Float16>();
}

}  // namespace checks
