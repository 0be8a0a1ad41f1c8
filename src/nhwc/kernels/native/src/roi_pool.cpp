// RoI pooling: the maximum over each bin of a region, rows of channels at a time, and where it lies.
#include <cfloat>

#include "export.h"
#include "roi_regions.h"

namespace nhwc {
namespace {

// torchvision starts at the least float in double precision too, and says -1 where nothing is larger.
template <class T>
void row_maximum(const T* from, int32_t place, int64_t channels, T* best, int32_t* places) {
    const T* __restrict in = from;
    T* __restrict most = best;
    int32_t* __restrict found = places;
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) {
        const bool larger = in[j] > most[j];
        found[j] = larger ? place : found[j];
        most[j] = larger ? in[j] : most[j];
    }
}

// y in rows of channels; places (regions, channels, bins) contiguous, since torchvision's backward reads it so.
template <class T>
void forward(const void* x, const void* regions, void* y, int32_t* places, const Regions& g) {
    parallel_for(g.count * g.bins_high, grain_for(g.bins_wide * g.channels * 8), [&](int64_t begin, int64_t end) {
        std::vector<int32_t> found(static_cast<size_t>(g.channels));
        for (int64_t at = begin; at < end; ++at) {
            const int64_t place = at / g.bins_high;
            const Corners<T> corners = corners_at(g, static_cast<const T*>(regions), place, 1, false);
            const T* image = static_cast<const T*>(x) + corners.sample * g.pixels() * g.channels;
            const Stretch down = stretch_of(corners.top, corners.bin_high, at % g.bins_high, g.height);
            T* to = static_cast<T*>(y) + at * g.bins_wide * g.channels;
            int32_t* where = places + place * g.channels * g.bins() + at % g.bins_high * g.bins_wide;
            for (int64_t bin = 0; bin < g.bins_wide; ++bin, to += g.channels, ++where) {
                const Stretch across = stretch_of(corners.left, corners.bin_wide, bin, g.width);
                const bool empty = down.last <= down.first || across.last <= across.first;
                std::fill(to, to + g.channels, empty ? T(0) : static_cast<T>(-FLT_MAX));
                std::fill(found.begin(), found.end(), -1);
                for (int64_t row = down.first; row < down.last; ++row)
                    for (int64_t column = across.first; column < across.last; ++column) {
                        const int64_t pixel = row * g.width + column;
                        row_maximum(image + pixel * g.channels, static_cast<int32_t>(pixel), g.channels, to, found.data());
                    }
                for (int64_t c = 0; c < g.channels; ++c) where[c * g.bins()] = found[static_cast<size_t>(c)];
            }
        }
    });
}

template <class T>
void backward(const void* dy, const void* regions, const int32_t* places, void* dx, const Regions& g) {
    gather_gradients<T>(dx, g, CHANNEL_BLOCK, [&](T* image, int64_t sample, int64_t c, int64_t width) {
        for (int64_t place = 0; place < g.count; ++place) {
            if (sample_of(g, static_cast<const T*>(regions), place) != sample) continue;
            const T* from = static_cast<const T*>(dy) + place * g.bins() * g.channels;
            const int32_t* where = places + place * g.channels * g.bins();
            for (int64_t bin = 0; bin < g.bins(); ++bin, from += g.channels)
                for (int64_t j = c; j < c + width; ++j) {
                    const int64_t pixel = where[j * g.bins() + bin];
                    if (pixel >= 0) image[pixel * g.channels + j] += from[j];
                }
        }
    });
}

}  // namespace
}  // namespace nhwc

NHWC_EXPORT(roi_pool_forward)(int dtype, const void* x, const void* regions, void* y, int32_t* places, const int64_t* sizes,
                              double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    if (dtype == nhwc::FLOAT32) nhwc::forward<float>(x, regions, y, places, g);
    if (dtype == nhwc::FLOAT64) nhwc::forward<double>(x, regions, y, places, g);
}

NHWC_EXPORT(roi_pool_backward)(int dtype, const void* dy, const void* regions, const int32_t* places, void* dx,
                               const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    if (dtype == nhwc::FLOAT32) nhwc::backward<float>(dy, regions, places, dx, g);
    if (dtype == nhwc::FLOAT64) nhwc::backward<double>(dy, regions, places, dx, g);
}
