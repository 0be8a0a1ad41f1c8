// Position-sensitive RoI align and pooling: every bin of a region has channels of its own, a bin's stride apart.
//
// Channel c of the result takes channel c * bins + bin of the image at each bin: the weights are computed once for all.
#include "export.h"
#include "roi_regions.h"

namespace nhwc {
namespace {

int64_t results(const Regions& g) { return g.channels / g.bins(); }

// Channels per task: whole cache lines, and all bins of a result.
int64_t block_of(const Regions& g) { return (CHANNEL_BLOCK + g.bins() - 1) / g.bins() * g.bins(); }

// sum[c] += weight * from[c * bins]
template <class T>
void add_strided(accumulate_t<T>* sum, const T* from, accumulate_t<T> weight, int64_t bins, int64_t count) {
    accumulate_t<T>* __restrict to = sum;
    const T* __restrict in = from;
    for (int64_t c = 0; c < count; ++c) to[c] += load(in + c * bins) * weight;
}

// to[c * bins] += weight * from[c]
template <class T>
void spread(accumulate_t<T>* to, const T* from, accumulate_t<T> weight, int64_t bins, int64_t count) {
    accumulate_t<T>* __restrict out = to;
    const T* __restrict in = from;
    for (int64_t c = 0; c < count; ++c) out[c * bins] += load(in + c) * weight;
}

// mapping (regions, results, bins), contiguous: which channel each value comes from, as torchvision says it.
void map_channels(int32_t* mapping, const Regions& g) {
    for (int64_t place = 0; place < g.count; ++place, mapping += g.channels)
        for (int64_t c = 0; c < g.channels; ++c) mapping[c] = static_cast<int32_t>(c);
}

// Calls body(region, line, bin, from the result's row) for the bins of all regions of one sample, in their order.
template <class T, class Body>
void each_bin(const T* dy, const T* regions, int64_t sample, const Regions& g, const Body& body) {
    for (int64_t place = 0; place < g.count; ++place) {
        if (sample_of(g, regions, place) != sample) continue;
        const T* from = dy + place * g.channels;
        for (int64_t bin = 0; bin < g.bins(); ++bin) body(place, bin, from + bin * results(g));
    }
}

template <class T>
void align_forward(const void* x, const void* regions, void* y, const Regions& g) {
    using A = accumulate_t<T>;
    const int64_t count = results(g), bins = g.bins();
    parallel_for(g.count * g.bins_high, grain_for(g.bins_wide * count * 16), [&](int64_t begin, int64_t end) {
        std::vector<A> sums(static_cast<size_t>(count));
        Weights<A> weights;
        for (int64_t at = begin; at < end; ++at) {
            const Region<A> region = region_at(g, static_cast<const T*>(regions), at / g.bins_high);
            const int64_t line = at % g.bins_high;
            const T* image = static_cast<const T*>(x) + region.sample * g.pixels() * g.channels + line * g.bins_wide;
            T* to = static_cast<T*>(y) + at * g.bins_wide * count;
            weigh_axis(region.down, line, g.height, weights.lines);
            for (int64_t bin = 0; bin < g.bins_wide; ++bin, to += count) {
                weigh_axis(region.across, bin, g.width, weights.columns);
                weights.combine(g.width, region.share);
                std::fill(sums.begin(), sums.end(), A(0));
                for (const Tap<A>& tap : weights.taps)
                    add_strided(sums.data(), image + tap.row * g.channels + bin, tap.weight, bins, count);
                for (int64_t c = 0; c < count; ++c) store(to + c, sums[static_cast<size_t>(c)]);
            }
        }
    });
}

template <class T>
void align_backward(const void* dy, const void* regions, void* dx, const Regions& g) {
    using A = accumulate_t<T>;
    const T* boxes = static_cast<const T*>(regions);
    gather_gradients<T>(dx, g, block_of(g), [&](A* image, int64_t sample, int64_t c, int64_t width) {
        Weights<A> weights;
        each_bin(static_cast<const T*>(dy), boxes, sample, g, [&](int64_t place, int64_t bin, const T* from) {
            const Region<A> region = region_at(g, boxes, place);
            weigh_axis(region.down, bin / g.bins_wide, g.height, weights.lines);
            weigh_axis(region.across, bin % g.bins_wide, g.width, weights.columns);
            weights.combine(g.width, region.share);
            for (const Tap<A>& tap : weights.taps)
                spread(image + tap.row * g.channels + c + bin, from + c / g.bins(), tap.weight, g.bins(), width / g.bins());
        });
    });
}

// torchvision's forward never reads the last row and column; its backward writes them.
template <class T>
void pool_forward(const void* x, const void* regions, void* y, const Regions& g) {
    const int64_t count = results(g);
    parallel_for(g.count * g.bins_high, grain_for(g.bins_wide * count * 16), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
            const Corners<T> corners = corners_at(g, static_cast<const T*>(regions), at / g.bins_high, 0, false);
            const int64_t line = at % g.bins_high;
            const T* image = static_cast<const T*>(x) + corners.sample * g.pixels() * g.channels + line * g.bins_wide;
            const Stretch down = stretch_of(corners.top, corners.bin_high, line, g.height - 1);
            T* to = static_cast<T*>(y) + at * g.bins_wide * count;
            for (int64_t bin = 0; bin < g.bins_wide; ++bin, to += count) {
                const Stretch across = stretch_of(corners.left, corners.bin_wide, bin, g.width - 1);
                std::fill(to, to + count, T(0));
                for (int64_t row = down.first; row < down.last; ++row)
                    for (int64_t column = across.first; column < across.last; ++column)
                        add_strided(to, image + (row * g.width + column) * g.channels + bin, T(1), g.bins(), count);
                const T area = static_cast<T>((down.last - down.first) * (across.last - across.first));
                if (down.last > down.first && across.last > across.first)
                    for (int64_t c = 0; c < count; ++c) to[c] /= area;
            }
        }
    });
}

template <class T>
void pool_backward(const void* dy, const void* regions, void* dx, const Regions& g) {
    const T* boxes = static_cast<const T*>(regions);
    gather_gradients<T>(dx, g, block_of(g), [&](T* image, int64_t sample, int64_t c, int64_t width) {
        const int64_t first = c / g.bins(), count = width / g.bins();
        std::vector<T> part(static_cast<size_t>(count));
        each_bin(static_cast<const T*>(dy), boxes, sample, g, [&](int64_t place, int64_t bin, const T* from) {
            const Corners<T> corners = corners_at(g, boxes, place, 0, true);
            const Stretch down = stretch_of(corners.top, corners.bin_high, bin / g.bins_wide, g.height);
            const Stretch across = stretch_of(corners.left, corners.bin_wide, bin % g.bins_wide, g.width);
            const T area = static_cast<T>((down.last - down.first) * (across.last - across.first));
            for (int64_t j = 0; j < count; ++j) part[static_cast<size_t>(j)] = from[first + j] / area;
            for (int64_t row = down.first; row < down.last; ++row)
                for (int64_t column = across.first; column < across.last; ++column)
                    spread(image + (row * g.width + column) * g.channels + c + bin, part.data(), T(1), g.bins(), count);
        });
    });
}

}  // namespace
}  // namespace nhwc

NHWC_EXPORT(ps_roi_align_forward)(int dtype, const void* x, const void* regions, void* y, int32_t* mapping,
                                  const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    nhwc::map_channels(mapping, g);
    NHWC_FOR_DTYPE(dtype, nhwc::align_forward, x, regions, y, g)
}

NHWC_EXPORT(ps_roi_align_backward)(int dtype, const void* dy, const void* regions, void* dx, const int64_t* sizes,
                                   double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    NHWC_FOR_DTYPE(dtype, nhwc::align_backward, dy, regions, dx, g)
}

NHWC_EXPORT(ps_roi_pool_forward)(int dtype, const void* x, const void* regions, void* y, int32_t* mapping,
                                 const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    nhwc::map_channels(mapping, g);
    if (dtype == nhwc::FLOAT32) nhwc::pool_forward<float>(x, regions, y, g);
    if (dtype == nhwc::FLOAT64) nhwc::pool_forward<double>(x, regions, y, g);
}

NHWC_EXPORT(ps_roi_pool_backward)(int dtype, const void* dy, const void* regions, void* dx, const int64_t* sizes,
                                  double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    if (dtype == nhwc::FLOAT32) nhwc::pool_backward<float>(dy, regions, dx, g);
    if (dtype == nhwc::FLOAT64) nhwc::pool_backward<double>(dy, regions, dx, g);
}
