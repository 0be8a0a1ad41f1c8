// Unfold and fold between a channels-last image and columns: (samples, channels * window, places), as torch keeps them,
// or with each place's values side by side.
//
// Columns go along places, the image along channels: a row of some channels at a time is transposed in the cache.
#include <algorithm>
#include <cstring>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "tile.h"
#include "vector.h"

namespace nhwc {
namespace {

struct Windows {
    int64_t samples, channels, height, width, window_high, window_wide, dilation_high, dilation_wide, pad_high, pad_wide,
        stride_high, stride_wide, places_high, places_wide;
    int64_t window() const { return window_high * window_wide; }
    int64_t places() const { return places_high * places_wide; }
    int64_t padded() const { return width + 2 * pad_wide; }
    int64_t blocks() const { return (channels + SIDE - 1) / SIDE; }

    // The line of windows that has image line `line` at its own line `at`; -1 for none.
    int64_t place_of(int64_t line, int64_t at) const {
        const int64_t first = line + pad_high - at * dilation_high;
        if (first < 0 || first % stride_high != 0 || first / stride_high >= places_high) return -1;
        return first / stride_high;
    }
};

template <class T>
inline void take(const T* from, int64_t step, T* to, int64_t count) {
    if (step == 1) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
        return;
    }
    for (int64_t j = 0; j < count; ++j) to[j] = from[j * step];
}

// A task is a line of places of up to 16 channels of a sample.
template <class T>
void unfold(const void* image, void* columns, const Windows& g) {
    const int64_t padded = g.padded(), line = g.places_wide;
    parallel_for(g.samples * g.blocks() * g.places_high, grain_for(SIDE * g.window() * line),
                 [&](int64_t begin, int64_t end) {
        std::vector<T> scratch(static_cast<size_t>(SIDE * padded));
        for (int64_t task = begin; task < end; ++task) {
            const int64_t place = task % g.places_high, block = task / g.places_high;
            const int64_t sample = block / g.blocks(), c = block % g.blocks() * SIDE;
            const int64_t count = std::min(SIDE, g.channels - c);
            T* to = static_cast<T*>(columns) + (sample * g.channels + c) * g.window() * g.places() + place * line;
            for (int64_t at = 0; at < g.window_high; ++at) {
                const int64_t row = place * g.stride_high - g.pad_high + at * g.dilation_high;
                const bool inside = row >= 0 && row < g.height;
                if (inside)
                    tile(static_cast<const T*>(image) + (sample * g.height + row) * g.width * g.channels + c, g.channels,
                         scratch.data() + g.pad_wide, padded, g.width, count);
                for (int64_t j = 0; j < count; ++j)
                    for (int64_t k = 0; k < g.window_wide; ++k) {
                        T* out = to + ((j * g.window_high + at) * g.window_wide + k) * g.places();
                        if (inside)
                            take(scratch.data() + j * padded + k * g.dilation_wide, g.stride_wide, out, line);
                        else
                            std::memset(out, 0, static_cast<size_t>(line) * sizeof(T));
                    }
            }
        }
    });
}

template <size_t BYTES>
struct raw_type;
template <>
struct raw_type<2> {
    using type = uint16_t;
};
template <>
struct raw_type<4> {
    using type = uint32_t;
};
template <>
struct raw_type<8> {
    using type = uint64_t;
};

// A task is a line of the image of up to 16 channels of a sample: the sums of all windows over it.
template <class T>
void fold(const void* columns, void* image, const Windows& g) {
    using A = accumulate_t<T>;
    using Raw = typename raw_type<sizeof(T)>::type;
    const int64_t padded = g.padded(), line = g.places_wide;
    parallel_for(g.samples * g.blocks() * g.height, grain_for(SIDE * g.window() * line), [&](int64_t begin, int64_t end) {
        std::vector<A> sums(static_cast<size_t>(SIDE * padded));
        std::vector<Raw> narrow(static_cast<size_t>(SIDE * g.width));
        for (int64_t task = begin; task < end; ++task) {
            const int64_t row = task % g.height, block = task / g.height;
            const int64_t sample = block / g.blocks(), c = block % g.blocks() * SIDE;
            const int64_t count = std::min(SIDE, g.channels - c);
            const T* from = static_cast<const T*>(columns) + (sample * g.channels + c) * g.window() * g.places();
            std::fill(sums.begin(), sums.begin() + count * padded, A(0));
            for (int64_t at = 0; at < g.window_high; ++at) {
                const int64_t place = g.place_of(row, at);
                if (place < 0) continue;
                for (int64_t j = 0; j < count; ++j)
                    for (int64_t k = 0; k < g.window_wide; ++k) {
                        const T* __restrict in =
                            from + ((j * g.window_high + at) * g.window_wide + k) * g.places() + place * line;
                        A* __restrict sum = sums.data() + j * padded + k * g.dilation_wide;
                        if (g.stride_wide == 1) {
                            for (int64_t i = 0; i < line; ++i) sum[i] += load(in + i);
                        } else {
                            for (int64_t i = 0; i < line; ++i) sum[i * g.stride_wide] += load(in + i);
                        }
                    }
            }
            for (int64_t j = 0; j < count; ++j) {
                const A* __restrict sum = sums.data() + j * padded + g.pad_wide;
                Raw* __restrict to = narrow.data() + j * g.width;
                for (int64_t i = 0; i < g.width; ++i) {
                    T value;
                    store(&value, sum[i]);
                    std::memcpy(to + i, &value, sizeof value);
                }
            }
            tile(narrow.data(), g.width,
                 static_cast<Raw*>(image) + (sample * g.height + row) * g.width * g.channels + c, g.channels, count,
                 g.width);
        }
    });
}

// The same from columns that keep each place's values side by side: (samples, places, channels * window).
template <class T>
void fold_places(const void* columns, void* image, const Windows& g) {
    using A = accumulate_t<T>;
    const int64_t window = g.window(), values = g.channels * window;
    parallel_for(g.samples * g.height, grain_for(g.width * values), [&](int64_t begin, int64_t end) {
        std::vector<A> sums(static_cast<size_t>(g.channels));
        A* __restrict sum = sums.data();
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / g.height, row = task % g.height;
            const T* from = static_cast<const T*>(columns) + sample * g.places() * values;
            T* to = static_cast<T*>(image) + task * g.width * g.channels;
            for (int64_t column = 0; column < g.width; ++column, to += g.channels) {
                std::fill(sum, sum + g.channels, A(0));
                for (int64_t at = 0; at < g.window_high; ++at) {
                    const int64_t place = g.place_of(row, at);
                    if (place < 0) continue;
                    for (int64_t k = 0; k < g.window_wide; ++k) {
                        const int64_t first = column + g.pad_wide - k * g.dilation_wide;
                        if (first < 0 || first % g.stride_wide != 0 || first / g.stride_wide >= g.places_wide) continue;
                        const T* __restrict in = from + (place * g.places_wide + first / g.stride_wide) * values +
                                                 at * g.window_wide + k;
                        for (int64_t c = 0; c < g.channels; ++c) sum[c] += load(in + c * window);
                    }
                }
                for (int64_t c = 0; c < g.channels; ++c) store(to + c, sum[c]);
            }
        }
    });
}

Windows windows_of(const int64_t* s) {
    return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13]};
}

}  // namespace
}  // namespace nhwc

// sizes: samples, channels, height, width, then pairs of high and wide: window, dilation, padding, stride, places.
NHWC_EXPORT(unfold)(int bytes, const void* image, void* columns, const int64_t* sizes) {
    const nhwc::Windows g = nhwc::windows_of(sizes);
    NHWC_FOR_BYTES(bytes, nhwc::unfold, image, columns, g)
}

// columns: contiguous (samples, channels * window, places), or, where `by_place`, (samples, places, channels * window).
NHWC_EXPORT(fold)(int dtype, const void* columns, void* image, const int64_t* sizes, int by_place) {
    const nhwc::Windows g = nhwc::windows_of(sizes);
    if (by_place) {
        NHWC_FOR_DTYPE(dtype, nhwc::fold_places, columns, image, g)
    } else {
        NHWC_FOR_DTYPE(dtype, nhwc::fold, columns, image, g)
    }
}
