// RoI align: each bin of a region is a weighted sum of whole rows of channels.
#include "export.h"
#include "roi_regions.h"

namespace nhwc {
namespace {

template <class T>
void forward(const void* x, const void* regions, void* y, const Regions& g) {
    using A = accumulate_t<T>;
    parallel_for(g.count * g.bins_high, grain_for(g.bins_wide * g.channels * 8), [&](int64_t begin, int64_t end) {
        std::vector<A> scratch(static_cast<size_t>(g.channels));
        Weights<A> weights;
        for (int64_t at = begin; at < end; ++at) {
            const Region<A> region = region_at(g, static_cast<const T*>(regions), at / g.bins_high);
            const T* image = static_cast<const T*>(x) + region.sample * g.pixels() * g.channels;
            T* to = static_cast<T*>(y) + at * g.bins_wide * g.channels;
            weigh_axis(region.down, at % g.bins_high, g.height, weights.lines);
            for (int64_t bin = 0; bin < g.bins_wide; ++bin, to += g.channels) {
                weigh_axis(region.across, bin, g.width, weights.columns);
                weights.combine(g.width, region.share);
                gather_row(image, weights.taps.data(), static_cast<int64_t>(weights.taps.size()), g.channels,
                           scratch.data(), to);
            }
        }
    });
}

// Adds the gradients of all regions of one sample to channels [c, c + width) of its image, in the regions' order.
template <class T>
void scatter(const T* dy, const T* regions, accumulate_t<T>* image, int64_t sample, int64_t c, int64_t width,
             const Regions& g) {
    using A = accumulate_t<T>;
    Weights<A> weights;
    for (int64_t place = 0; place < g.count; ++place) {
        if (sample_of(g, regions, place) != sample) continue;
        const Region<A> region = region_at(g, regions, place);
        const T* from = dy + place * g.bins() * g.channels + c;
        for (int64_t line = 0; line < g.bins_high; ++line) {
            weigh_axis(region.down, line, g.height, weights.lines);
            for (int64_t bin = 0; bin < g.bins_wide; ++bin, from += g.channels) {
                weigh_axis(region.across, bin, g.width, weights.columns);
                weights.combine(g.width, region.share);
                for (const Tap<A>& tap : weights.taps) add_row(image + tap.row * g.channels + c, from, tap.weight, width);
            }
        }
    }
}

template <class T>
void backward(const void* dy, const void* regions, void* dx, const Regions& g) {
    gather_gradients<T>(dx, g, CHANNEL_BLOCK, [&](accumulate_t<T>* image, int64_t sample, int64_t c, int64_t width) {
        scatter(static_cast<const T*>(dy), static_cast<const T*>(regions), image, sample, c, width, g);
    });
}

// How many regions are no plain ones: of no sample, beyond `far` pixels or no numbers, or with too few samples.
template <class T>
void count_odd(const void* regions, double far, int64_t* found, const Regions& g) {
    *found = 0;
    for (int64_t place = 0; place < g.count; ++place) {
        const T* from = static_cast<const T*>(regions) + place * g.stride;
        const double sample = static_cast<double>(load(from));
        bool plain = sample >= 0 && sample < static_cast<double>(g.samples);
        for (int k = 1; k < 5; ++k) plain &= std::abs(static_cast<double>(load(from + k * g.step)) * g.scale) <= far;
        if (plain) {
            const auto region = region_at(g, static_cast<const T*>(regions), place);
            plain = region.down.samples >= g.fewest && region.across.samples >= g.fewest;
        }
        *found += !plain;
    }
}

}  // namespace
}  // namespace nhwc

// found: how many regions torchvision's kernel has to answer for, of any RoI operator; sizes as in roi_regions.h.
NHWC_EXPORT(roi_odd)(int dtype, const void* regions, double far, int64_t* found, const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    NHWC_FOR_DTYPE(dtype, nhwc::count_odd, regions, far, found, g)
}

NHWC_EXPORT(roi_align_forward)(int dtype, const void* x, const void* regions, void* y, const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    NHWC_FOR_DTYPE(dtype, nhwc::forward, x, regions, y, g)
}

NHWC_EXPORT(roi_align_backward)(int dtype, const void* dy, const void* regions, void* dx, const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    NHWC_FOR_DTYPE(dtype, nhwc::backward, dy, regions, dx, g)
}
