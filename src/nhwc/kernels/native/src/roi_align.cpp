// RoI align: each bin of a region is a weighted sum of whole rows of channels.
//
// A bin's samples form a grid and bilinear weights are products, so that the weights of a bin are those of its lines
// times those of its columns: neighbouring samples share pixels, and every pixel is read once per bin.
#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "taps.h"

namespace nhwc {
namespace {

// Strides of the regions are in elements; a region is sample, x1, y1, x2, y2.
struct Regions {
    int64_t samples, channels, height, width, count, stride, step, bins_high, bins_wide, sampling;
    bool aligned;
    double scale;
    int64_t pixels() const { return height * width; }
    int64_t bins() const { return bins_high * bins_wide; }
};

// torchvision rounds after every product; a fused one would decide differently at the image's edge.
template <class A>
inline A rounded(A value) {
    asm("" : "+m"(value));
    return value;
}

// One axis of a region: where it starts, how long a bin is, and how many samples that has.
template <class A>
struct Span {
    A start, bin;
    int64_t samples;
};

template <class A>
struct Region {
    int64_t sample;
    Span<A> down, across;
    A share;  // of each sample in its bin's mean
};

template <class A>
Span<A> span_of(const Regions& g, A low, A high, int64_t bins) {
    const A scale = static_cast<A>(g.scale), offset = g.aligned ? A(0.5) : A(0);
    const A start = rounded(low * scale) - offset, end = rounded(high * scale) - offset;
    const A length = g.aligned ? end - start : std::max(end - start, A(1)), bin = length / static_cast<A>(bins);
    return {start, bin, g.sampling > 0 ? g.sampling : static_cast<int64_t>(std::ceil(bin))};
}

template <class T>
Region<accumulate_t<T>> region_at(const Regions& g, const T* regions, int64_t place) {
    using A = accumulate_t<T>;
    A value[5];
    for (int k = 0; k < 5; ++k) value[k] = load(regions + place * g.stride + k * g.step);
    Region<A> region{static_cast<int64_t>(value[0]), span_of(g, value[2], value[4], g.bins_high),
                     span_of(g, value[1], value[3], g.bins_wide), A(0)};
    region.share = A(1) / static_cast<A>(std::max<int64_t>(region.down.samples * region.across.samples, 1));
    return region;
}

template <class A>
void add_weight(std::vector<Tap<A>>& taps, int64_t row, A weight) {
    const size_t last = taps.size() < 3 ? taps.size() : 3;
    for (size_t k = 1; k <= last; ++k)
        if (taps[taps.size() - k].row == row) {
            taps[taps.size() - k].weight += weight;
            return;
        }
    taps.push_back({row, weight});
}

// The pixels along one axis that a bin's samples fall between, with the sum of their weights.
template <class A>
void weigh_axis(const Span<A>& span, int64_t bin, int64_t size, std::vector<Tap<A>>& taps) {
    taps.clear();
    const A start = span.start + rounded(static_cast<A>(bin) * span.bin);
    for (int64_t k = 0; k < span.samples; ++k) {
        const A at = start + (static_cast<A>(k) + A(0.5)) * span.bin / static_cast<A>(span.samples);
        if (!(at >= A(-1) && at <= static_cast<A>(size))) continue;
        const A inside = std::max(at, A(0));
        const int64_t low = static_cast<int64_t>(inside);
        if (low >= size - 1) {
            add_weight(taps, size - 1, A(1));
            continue;
        }
        const A part = inside - static_cast<A>(low);
        add_weight(taps, low, A(1) - part);
        add_weight(taps, low + 1, part);
    }
}

// Room for the pixels of one bin, kept from bin to bin.
template <class A>
struct Weights {
    std::vector<Tap<A>> lines, columns, taps;

    void combine(int64_t width, A share) {
        taps.clear();
        for (const Tap<A>& line : lines)
            for (const Tap<A>& column : columns)
                taps.push_back({line.row * width + column.row, line.weight * column.weight * share});
    }
};

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
             const Regions& g, Weights<accumulate_t<T>>& weights) {
    using A = accumulate_t<T>;
    for (int64_t place = 0; place < g.count; ++place) {
        const Region<A> region = region_at(g, regions, place);
        if (region.sample != sample) continue;
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

// Each task owns a run of blocks of one sample's channels: the order of the sums is the same on any number of threads.
template <class T>
void backward(const void* dy, const void* regions, void* dx, const Regions& g) {
    using A = accumulate_t<T>;
    constexpr bool DIRECT = std::is_same_v<T, A>;
    const int64_t blocks = (g.channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK, area = g.pixels() * g.channels;
    std::unique_ptr<A[]> wide(DIRECT ? nullptr : new A[static_cast<size_t>(g.samples * area)]);
    parallel_for(g.samples * blocks, 1, [&](int64_t begin, int64_t end) {
        Weights<A> weights;
        while (begin < end) {
            const int64_t sample = begin / blocks, first = begin % blocks, last = std::min(blocks, first + end - begin);
            const int64_t c = first * CHANNEL_BLOCK, width = std::min(g.channels, last * CHANNEL_BLOCK) - c;
            begin += last - first;
            T* to = static_cast<T*>(dx) + sample * area;
            A* image = nullptr;
            if constexpr (DIRECT) {
                image = to;
            } else {
                image = wide.get() + sample * area;
            }
            for (int64_t at = c; at < area; at += g.channels) std::fill(image + at, image + at + width, A(0));
            scatter(static_cast<const T*>(dy), static_cast<const T*>(regions), image, sample, c, width, g, weights);
            if constexpr (!DIRECT)
                for (int64_t at = c; at < area; at += g.channels)
                    for (int64_t j = at; j < at + width; ++j) store(to + j, image[j]);
        }
    });
}

// How many regions are no plain ones: of no sample, beyond `far` pixels or no numbers, or with a negative number of samples.
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
            plain = region.down.samples >= 0 && region.across.samples >= 0;
        }
        *found += !plain;
    }
}

Regions regions_of(const int64_t* s, double scale) {
    return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10] != 0, scale};
}

}  // namespace
}  // namespace nhwc

// found: how many regions torchvision's kernel has to answer for; sizes as below.
NHWC_EXPORT(roi_align_odd)(int dtype, const void* regions, double far, int64_t* found, const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    NHWC_FOR_DTYPE(dtype, nhwc::count_odd, regions, far, found, g)
}

// sizes: samples, channels, height, width, regions, their two strides, bins high and wide, samples per bin, aligned.
NHWC_EXPORT(roi_align_forward)(int dtype, const void* x, const void* regions, void* y, const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    NHWC_FOR_DTYPE(dtype, nhwc::forward, x, regions, y, g)
}

NHWC_EXPORT(roi_align_backward)(int dtype, const void* dy, const void* regions, void* dx, const int64_t* sizes, double scale) {
    const nhwc::Regions g = nhwc::regions_of(sizes, scale);
    NHWC_FOR_DTYPE(dtype, nhwc::backward, dy, regions, dx, g)
}
