// Deformable convolution on channels-last images: columns of sampled rows of channels, and the gradients of the samples.
//
// Columns are (weight groups, places, window, channels of a group): a matrix product with the weights in rows of channels
// makes the result, in rows of channels too. A call works on some places of the batch, so that columns stay in the cache.
#include <algorithm>
#include <cmath>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "taps.h"

namespace nhwc {
namespace {

struct Deformed {
    int64_t samples, channels, height, width, places_high, places_wide, window_high, window_wide, stride_high, stride_wide,
        pad_high, pad_wide, dilation_high, dilation_wide, groups, offset_groups;
    const int64_t* offset_strides;  // of samples, channels, height, width
    const int64_t* mask_strides;
    int64_t places() const { return places_high * places_wide; }
    int64_t window() const { return window_high * window_wide; }
    int64_t group() const { return channels / groups; }
    int64_t offset_group() const { return channels / offset_groups; }
};

// Channels [first, last) that share offsets and weights.
struct Part {
    int64_t first, last;
};

std::vector<Part> parts_of(const Deformed& g, int64_t longest) {
    std::vector<Part> parts;
    for (int64_t c = 0; c < g.channels; c = parts.back().last) {
        const auto border = [c](int64_t size) { return (c / size + 1) * size; };
        parts.push_back({c, std::min({c + longest, border(g.group()), border(g.offset_group()), g.channels})});
    }
    return parts;
}

// One place of the result.
struct Place {
    int64_t sample, high, wide;
};

inline Place place_at(const Deformed& g, int64_t place) {
    const int64_t inside = place % g.places();
    return {place / g.places(), inside / g.places_wide, inside % g.places_wide};
}

// Where one element of the window reads: four pixels, -1 for those outside, and how far from the first.
template <class T>
struct Point {
    int64_t pixels[4];
    T down, across, mask;
    bool inside;  // of the image and the ring around it that weighs with it
    bool none;    // since a coordinate is no number, which torchvision reads memory out of bounds for

    T weight(int corner) const {
        return ((corner & 2) ? down : T(1) - down) * ((corner & 1) ? across : T(1) - across);
    }
};

template <class T>
inline T at_strides(const T* from, const int64_t* strides, const Place& place, int64_t channel) {
    return from[place.sample * strides[0] + channel * strides[1] + place.high * strides[2] + place.wide * strides[3]];
}

template <class T>
Point<T> point_at(const Deformed& g, const T* offset, const T* mask, const Place& place, int64_t group, int64_t k) {
    const int64_t channel = group * g.window() + k;
    const int64_t high = place.high * g.stride_high - g.pad_high + k / g.window_wide * g.dilation_high;
    const int64_t wide = place.wide * g.stride_wide - g.pad_wide + k % g.window_wide * g.dilation_wide;
    const T y = static_cast<T>(high) + at_strides(offset, g.offset_strides, place, 2 * channel);
    const T x = static_cast<T>(wide) + at_strides(offset, g.offset_strides, place, 2 * channel + 1);
    const T high_end = static_cast<T>(g.height), wide_end = static_cast<T>(g.width);
    Point<T> point{{-1, -1, -1, -1}, T(0), T(0), T(1), false, std::isnan(y) || std::isnan(x)};
    if (point.none) point.down = point.across = y + x;
    // exactly on the border the image weighs nothing, but the gradients of the offset see it, as in torchvision
    if (y >= T(-1) && y < high_end && x >= T(-1) && x < wide_end) {
        const T top = std::floor(y), left = std::floor(x);
        for (int corner = 0; corner < 4; ++corner) {
            const int64_t r = static_cast<int64_t>(top) + (corner >> 1), c = static_cast<int64_t>(left) + (corner & 1);
            const bool valid = r >= 0 && r < g.height && c >= 0 && c < g.width;
            point.pixels[corner] = valid ? (place.sample * g.height + r) * g.width + c : -1;
        }
        point.down = y - top;
        point.across = x - left;
        point.inside = y > T(-1) && x > T(-1);
    }
    point.mask = mask == nullptr ? T(1) : at_strides(mask, g.mask_strides, place, channel);
    return point;
}

template <class T>
void sample(const void* x, const void* offset, const void* mask, void* columns, const Deformed& g, int64_t first,
            int64_t count) {
    const std::vector<Part> parts = parts_of(g, g.channels);
    const std::vector<T> zeros(static_cast<size_t>(g.channels), T(0));
    parallel_for(count, grain_for(g.window() * g.channels * 4), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
            const Place place = place_at(g, first + at);
            for (int64_t k = 0; k < g.window(); ++k) {
                Point<T> point{};
                int64_t known = -1;
                for (const Part& part : parts) {
                    const int64_t group = part.first / g.group(), offsets = part.first / g.offset_group();
                    if (offsets != known)
                        point = point_at(g, static_cast<const T*>(offset), static_cast<const T*>(mask), place, offsets, k);
                    known = offsets;
                    T* __restrict to = static_cast<T*>(columns) +
                                       ((group * count + at) * g.window() + k) * g.group() + part.first % g.group();
                    const int64_t width = part.last - part.first;
                    if (!point.inside) {
                        std::fill(to, to + width, point.none ? point.down : T(0));
                        continue;
                    }
                    const T* rows[4];
                    for (int corner = 0; corner < 4; ++corner)
                        rows[corner] = point.pixels[corner] < 0 ? zeros.data()
                                                                : static_cast<const T*>(x) +
                                                                      point.pixels[corner] * g.channels + part.first;
                    const T *__restrict p = rows[0], *__restrict q = rows[1], *__restrict r = rows[2],
                            *__restrict s = rows[3];
                    const T a = point.weight(0), b = point.weight(1), c = point.weight(2), d = point.weight(3);
                    const T share = point.mask;
                    NHWC_INDEPENDENT
                    for (int64_t j = 0; j < width; ++j) to[j] = share * (a * p[j] + b * q[j] + c * r[j] + d * s[j]);
                }
            }
        }
    });
}

// Gradients of the offsets and the mask, in rows of their channels, from those of the columns.
template <class T>
void move(const void* x, const void* offset, const void* mask, const void* columns, void* offset_gradient,
          void* mask_gradient, const Deformed& g, int64_t first, int64_t count) {
    const std::vector<Part> parts = parts_of(g, g.channels);
    const int64_t values = g.offset_groups * g.window();
    parallel_for(count, grain_for(g.window() * g.channels * 4), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
            const Place place = place_at(g, first + at);
            T* to = static_cast<T*>(offset_gradient) + (first + at) * values * 2;
            T* masks = mask_gradient == nullptr ? nullptr : static_cast<T*>(mask_gradient) + (first + at) * values;
            for (int64_t k = 0; k < g.window(); ++k) {
                size_t next = 0;
                for (int64_t offsets = 0; offsets < g.offset_groups; ++offsets) {
                    const Point<T> point =
                        point_at(g, static_cast<const T*>(offset), static_cast<const T*>(mask), place, offsets, k);
                    T sums[4] = {};
                    for (; next < parts.size() && parts[next].first / g.offset_group() == offsets; ++next) {
                        const Part& part = parts[next];
                        const T* from = static_cast<const T*>(columns) +
                                        ((part.first / g.group() * count + at) * g.window() + k) * g.group() +
                                        part.first % g.group();
                        for (int corner = 0; corner < 4; ++corner)
                            if (point.pixels[corner] >= 0)
                                sums[corner] += dot_row(
                                    from, static_cast<const T*>(x) + point.pixels[corner] * g.channels + part.first,
                                    part.last - part.first);
                    }
                    const int64_t channel = offsets * g.window() + k;
                    const T down = point.down, across = point.across;
                    to[2 * channel] =
                        point.mask * (across * (sums[3] - sums[1]) + (T(1) - across) * (sums[2] - sums[0]));
                    to[2 * channel + 1] =
                        point.mask * (down * (sums[3] - sums[2]) + (T(1) - down) * (sums[1] - sums[0]));
                    if (masks == nullptr) continue;
                    T value(0);
                    if (point.inside)
                        for (int corner = 0; corner < 4; ++corner) value += point.weight(corner) * sums[corner];
                    masks[channel] = value;
                }
            }
        }
    });
}

// Adds the gradients of the columns to the images dx. A task owns some channels of a sample: one order of every sum.
template <class T>
void scatter(const void* offset, const void* mask, const void* columns, void* dx, const Deformed& g, int64_t first,
             int64_t count) {
    const std::vector<Part> parts = parts_of(g, CHANNEL_BLOCK);
    const int64_t blocks = static_cast<int64_t>(parts.size());
    const int64_t lowest = first / g.places(), samples = (first + count - 1) / g.places() - lowest + 1;
    parallel_for(samples * blocks, 1, [&](int64_t begin, int64_t end) {
        while (begin < end) {
            const int64_t sample = lowest + begin / blocks, low = begin % blocks;
            const int64_t high = std::min(blocks, low + end - begin);
            begin += high - low;
            const int64_t from_place = std::max(first, sample * g.places());
            const int64_t to_place = std::min(first + count, (sample + 1) * g.places());
            for (int64_t at = from_place; at < to_place; ++at) {
                const Place place = place_at(g, at);
                for (int64_t k = 0; k < g.window(); ++k) {
                    Point<T> point{};
                    int64_t known = -1;
                    for (int64_t block = low; block < high; ++block) {
                        const Part part = parts[static_cast<size_t>(block)];
                        const int64_t offsets = part.first / g.offset_group();
                        if (offsets != known)
                            point =
                                point_at(g, static_cast<const T*>(offset), static_cast<const T*>(mask), place, offsets, k);
                        known = offsets;
                        if (!point.inside) continue;
                        const T* from = static_cast<const T*>(columns) +
                                        ((part.first / g.group() * count + at - first) * g.window() + k) * g.group() +
                                        part.first % g.group();
                        for (int corner = 0; corner < 4; ++corner)
                            if (point.pixels[corner] >= 0)
                                add_row(static_cast<T*>(dx) + point.pixels[corner] * g.channels + part.first, from,
                                        point.mask * point.weight(corner), part.last - part.first);
                    }
                }
            }
        }
    });
}

Deformed deformed_of(const int64_t* s) {
    return {s[0], s[1], s[2],  s[3],  s[4],  s[5],  s[6],  s[7],   s[8],
            s[9], s[10], s[11], s[12], s[13], s[14], s[15], s + 16, s + 20};
}

}  // namespace
}  // namespace nhwc

#define NHWC_FOR_PRECISION(DTYPE, NAME, ...)                          \
    if ((DTYPE) == ::nhwc::FLOAT32) ::nhwc::NAME<float>(__VA_ARGS__); \
    if ((DTYPE) == ::nhwc::FLOAT64) ::nhwc::NAME<double>(__VA_ARGS__);

// sizes: samples, channels, height, width, then pairs of high and wide: places, window, stride, padding, dilation; weight
// groups, offset groups; four strides of the offsets, and four of the mask. first, count: the places of the batch to do.
NHWC_EXPORT(deform_sample)(int dtype, const void* x, const void* offset, const void* mask, void* columns,
                           const int64_t* sizes, int64_t first, int64_t count) {
    const nhwc::Deformed g = nhwc::deformed_of(sizes);
    NHWC_FOR_PRECISION(dtype, sample, x, offset, mask, columns, g, first, count)
}

NHWC_EXPORT(deform_move)(int dtype, const void* x, const void* offset, const void* mask, const void* columns,
                         void* offset_gradient, void* mask_gradient, const int64_t* sizes, int64_t first, int64_t count) {
    const nhwc::Deformed g = nhwc::deformed_of(sizes);
    NHWC_FOR_PRECISION(dtype, move, x, offset, mask, columns, offset_gradient, mask_gradient, g, first, count)
}

NHWC_EXPORT(deform_scatter)(int dtype, const void* offset, const void* mask, const void* columns, void* dx,
                            const int64_t* sizes, int64_t first, int64_t count) {
    const nhwc::Deformed g = nhwc::deformed_of(sizes);
    NHWC_FOR_PRECISION(dtype, scatter, offset, mask, columns, dx, g, first, count)
}
