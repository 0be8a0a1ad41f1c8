// Regions of interest: where they lie in the image, the weighted pixels of a bin, and gradients shared out by channels.
//
// A bin's samples form a grid and bilinear weights are products, so that the weights of a bin are those of its lines
// times those of its columns: neighbouring samples share pixels, and every pixel is read once per bin.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

#include "parallel.h"
#include "taps.h"

namespace nhwc {

// Strides of the regions are in elements; a region is sample, x1, y1, x2, y2.
struct Regions {
    int64_t samples, channels, height, width, count, stride, step, bins_high, bins_wide, sampling;
    bool aligned;
    int64_t fewest;  // samples that a region must have
    double scale;
    int64_t pixels() const { return height * width; }
    int64_t bins() const { return bins_high * bins_wide; }
};

// sizes: samples, channels, height, width, regions, their two strides, bins high and wide, samples per bin (0: adaptive),
// aligned, the fewest samples that a region may have.
inline Regions regions_of(const int64_t* s, double scale) {
    return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10] != 0, s[11], scale};
}

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

// The sample that a region lies in, alone.
template <class T>
int64_t sample_of(const Regions& g, const T* regions, int64_t place) {
    return static_cast<int64_t>(load(regions + place * g.stride));
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

// Fills the images dx with gradients: body(image, sample, c, width) adds to channels [c, c + width) of a sample's image,
// which are zero before. Each task owns a run of blocks of channels, whose sums then have one order on any number of
// threads. block: channels per block, as torchvision's maps need them kept together.
template <class T, class Body>
void gather_gradients(void* dx, const Regions& g, int64_t block, const Body& body) {
    using A = accumulate_t<T>;
    constexpr bool DIRECT = std::is_same_v<T, A>;
    const int64_t blocks = (g.channels + block - 1) / block, area = g.pixels() * g.channels;
    std::unique_ptr<A[]> wide(DIRECT ? nullptr : new A[static_cast<size_t>(g.samples * area)]);
    parallel_for(g.samples * blocks, 1, [&](int64_t begin, int64_t end) {
        while (begin < end) {
            const int64_t sample = begin / blocks, first = begin % blocks, last = std::min(blocks, first + end - begin);
            const int64_t c = first * block, width = std::min(g.channels, last * block) - c;
            begin += last - first;
            T* to = static_cast<T*>(dx) + sample * area;
            A* image = nullptr;
            if constexpr (DIRECT) {
                image = to;
            } else {
                image = wide.get() + sample * area;
            }
            for (int64_t at = c; at < area; at += g.channels) std::fill(image + at, image + at + width, A(0));
            body(image, sample, c, width);
            if constexpr (!DIRECT)
                for (int64_t at = c; at < area; at += g.channels)
                    for (int64_t j = at; j < at + width; ++j) store(to + j, image[j]);
        }
    });
}

// The corners of a region, rounded to pixels, and its bins, which may overlap by a pixel: what pooling takes.
template <class A>
struct Corners {
    int64_t sample, top, left;
    A bin_high, bin_wide;
};

// margin: what torchvision adds to a region's extent. narrow: whether it rounds in single precision.
template <class T>
Corners<T> corners_at(const Regions& g, const T* regions, int64_t place, int64_t margin, bool narrow) {
    const T scale = static_cast<T>(g.scale);
    int64_t at[5];
    for (int k = 1; k < 5; ++k) {
        const T value = rounded(load(regions + place * g.stride + k * g.step) * scale);
        at[k] = static_cast<int64_t>(narrow ? std::round(static_cast<float>(value)) : std::round(value));
    }
    const auto bin = [&](int64_t from, int64_t to, int64_t bins) {
        return static_cast<T>(std::max<int64_t>(to - from + margin, 1)) / static_cast<T>(bins);
    };
    return {sample_of(g, regions, place), at[2], at[1], bin(at[2], at[4], g.bins_high), bin(at[1], at[3], g.bins_wide)};
}

// The pixels [first, last) of a bin along an axis, cut off at `limit`.
struct Stretch {
    int64_t first, last;
};

template <class A>
Stretch stretch_of(int64_t origin, A bin, int64_t place, int64_t limit) {
    const auto cut = [&](A at) {
        return std::min(std::max<int64_t>(static_cast<int64_t>(at) + origin, 0), limit);
    };
    return {cut(std::floor(rounded(static_cast<A>(place) * bin))), cut(std::ceil(rounded(static_cast<A>(place + 1) * bin)))};
}

}  // namespace nhwc
