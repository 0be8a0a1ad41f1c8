// grid_sample over channels-last rows: a point of the grid is a short list of rows with weights, per dimension.
#include <cmath>
#include <type_traits>

#include "export.h"
#include "parallel.h"
#include "taps.h"

namespace nhwc {
namespace {

enum Mode : int { BILINEAR = 0, NEAREST = 1, BICUBIC = 2 };
enum Padding : int { ZEROS = 0, BORDER = 1, REFLECTION = 2 };

// Sizes are depth, height, width (depth 1 in 2-D); grid strides are in elements: sample, depth, height, width, coordinate.
struct Grid {
    int64_t samples, channels, dims;
    int64_t in[3], out[3], stride[5];
    int mode, padding;
    bool align;
    int64_t points() const { return out[0] * out[1] * out[2]; }
    // Points lie evenly spaced: one stride leads through all of a sample's.
    bool is_even() const {
        return stride[2] == out[2] * stride[3] && (dims == 2 || stride[1] == out[1] * stride[2]);
    }
    int64_t pixels() const { return in[0] * in[1] * in[2]; }
};

// The neighbours of one coordinate: index -1 lies outside. slope is the weight's derivative by the grid's coordinate.
template <class A>
struct Axis {
    int count;
    int64_t index[4];
    A weight[4], slope[4];
};

template <class A>
A reflected(A x, int64_t twice_low, int64_t twice_high, A* sign) {
    if (twice_low == twice_high) {
        *sign = A(0);
        return A(0);
    }
    const A low = static_cast<A>(twice_low) / 2, span = static_cast<A>(twice_high - twice_low) / 2;
    x -= low;
    if (x < A(0)) {
        x = -x;
        *sign = -*sign;
    }
    const A extra = std::fmod(x, span);
    const bool even = std::fmod(std::floor(x / span), A(2)) == A(0);
    if (even) return extra + low;
    *sign = -*sign;
    return span - extra + low;
}

// The coordinate in [0, size - 1] that padding makes of x; slope is multiplied by its derivative.
template <class A>
A padded(const Grid& g, A x, int64_t size, A* slope) {
    if (g.padding == ZEROS) return x;
    if (g.padding == REFLECTION) x = g.align ? reflected(x, 0, 2 * (size - 1), slope) : reflected(x, -1, 2 * size - 1, slope);
    const A last = static_cast<A>(size - 1);
    if (!(x > A(0)) || x >= last) *slope = A(0);
    return std::min(std::max(x, A(0)), last);
}

template <class A>
int64_t inside(A x, int64_t size) {
    return x >= A(0) && x <= static_cast<A>(size - 1) ? static_cast<int64_t>(x) : -1;
}

template <class A>
void cubic(A t, A* weight, A* slope) {
    constexpr A a = A(-0.75);
    const auto near = [&](A x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
    const auto far = [&](A x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
    const auto near_slope = [&](A x) { return (3 * (a + 2) * x - 2 * (a + 3)) * x; };
    const auto far_slope = [&](A x) { return (3 * a * x - 10 * a) * x + 8 * a; };
    weight[0] = far(t + 1), weight[1] = near(t), weight[2] = near(1 - t), weight[3] = far(2 - t);
    slope[0] = far_slope(t + 1), slope[1] = near_slope(t), slope[2] = -near_slope(1 - t), slope[3] = -far_slope(2 - t);
}

template <int MODE, class A>
inline void axis_at(const Grid& g, A coordinate, int64_t size, Axis<A>& axis) {
    A slope = g.align ? static_cast<A>(size - 1) / 2 : static_cast<A>(size) / 2;
    const A x = g.align ? (coordinate + 1) / 2 * static_cast<A>(size - 1)
                        : ((coordinate + 1) * static_cast<A>(size) - 1) / 2;
    if constexpr (MODE == BICUBIC) {
        const A base = std::floor(x);
        axis.count = 4;
        cubic(x - base, axis.weight, axis.slope);
        for (int k = 0; k < 4; ++k) {
            A unused(1);
            axis.index[k] = inside(padded(g, base + static_cast<A>(k - 1), size, &unused), size);
            axis.slope[k] *= slope;
        }
        return;
    }
    const A at = padded(g, x, size, &slope);
    if constexpr (MODE == NEAREST) {
        axis.count = 1;
        axis.index[0] = inside(std::nearbyint(at), size);
        axis.weight[0] = A(1);
        axis.slope[0] = A(0);
        return;
    }
    const A base = std::floor(at), part = at - base;
    axis.count = 2;
    axis.index[0] = inside(base, size), axis.index[1] = inside(base + 1, size);
    axis.weight[0] = 1 - part, axis.weight[1] = part;
    axis.slope[0] = -slope, axis.slope[1] = slope;
}

// The axes, in the order depth, height, width, at one point of the grid.
template <int MODE, class T, class A>
inline void axes_at(const Grid& g, const T* grid, int64_t sample, int64_t point, Axis<A>* axes) {
    const T* at = grid + sample * g.stride[0];
    if (g.is_even()) {
        at += point * g.stride[3];
    } else {
        const int64_t line = point / g.out[2];
        at += line / g.out[1] * g.stride[1] + line % g.out[1] * g.stride[2] + point % g.out[2] * g.stride[3];
    }
    // the grid's coordinates come in the order x, y, z
    axis_at<MODE, A>(g, load(at), g.in[2], axes[2]);
    axis_at<MODE, A>(g, load(at + g.stride[4]), g.in[1], axes[1]);
    if (g.dims == 3) {
        axis_at<MODE, A>(g, load(at + 2 * g.stride[4]), g.in[0], axes[0]);
    } else {
        axes[0].count = 1;
        axes[0].index[0] = 0;
        axes[0].weight[0] = A(1);
        axes[0].slope[0] = A(0);
    }
}

// visit(row, i, j, k) for every neighbour inside, as an index into each axis.
template <class A, class Visit>
void for_neighbours(const Grid& g, const Axis<A>* axes, const Visit& visit) {
    for (int i = 0; i < axes[0].count; ++i) {
        if (axes[0].index[i] < 0) continue;
        for (int j = 0; j < axes[1].count; ++j) {
            if (axes[1].index[j] < 0) continue;
            const int64_t line = (axes[0].index[i] * g.in[1] + axes[1].index[j]) * g.in[2];
            for (int k = 0; k < axes[2].count; ++k)
                if (axes[2].index[k] >= 0) visit(line + axes[2].index[k], i, j, k);
        }
    }
}

template <class A>
int64_t taps_of(const Grid& g, const Axis<A>* axes, Tap<A>* taps) {
    int64_t count = 0;
    for_neighbours(g, axes, [&](int64_t row, int i, int j, int k) {
        taps[count++] = {row, axes[0].weight[i] * axes[1].weight[j] * axes[2].weight[k]};
    });
    return count;
}

template <int MODE, class T>
void forward_as(const void* x, const void* grid, void* y, const Grid& g) {
    using A = accumulate_t<T>;
    const int64_t points = g.points();
    parallel_for(g.samples * points, grain_for(g.channels * 8), [&](int64_t begin, int64_t end) {
        std::vector<A> scratch(static_cast<size_t>(g.channels));
        Axis<A> axes[3];
        Tap<A> taps[16];
        for (int64_t at = begin; at < end; ++at) {
            const int64_t sample = at / points;
            axes_at<MODE>(g, static_cast<const T*>(grid), sample, at % points, axes);
            gather_row(static_cast<const T*>(x) + sample * g.pixels() * g.channels, taps, taps_of(g, axes, taps),
                       g.channels, scratch.data(), static_cast<T*>(y) + at * g.channels);
        }
    });
}

// dgrid is contiguous: points x dims, in the grid's order.
template <int MODE, class T>
void grid_gradient(const T* dy, const T* x, const T* grid, T* dgrid, const Grid& g) {
    using A = accumulate_t<T>;
    const int64_t points = g.points();
    parallel_for(g.samples * points, grain_for(g.channels * 8), [&](int64_t begin, int64_t end) {
        Axis<A> axes[3];
        for (int64_t at = begin; at < end; ++at) {
            const T* image = x + at / points * g.pixels() * g.channels;
            A slope[3] = {};
            if constexpr (MODE != NEAREST) {
                axes_at<MODE>(g, grid, at / points, at % points, axes);
                for_neighbours(g, axes, [&](int64_t row, int i, int j, int k) {
                    const A dot = dot_row(dy + at * g.channels, image + row * g.channels, g.channels);
                    slope[0] += dot * axes[0].weight[i] * axes[1].weight[j] * axes[2].slope[k];
                    slope[1] += dot * axes[0].weight[i] * axes[1].slope[j] * axes[2].weight[k];
                    slope[2] += dot * axes[0].slope[i] * axes[1].weight[j] * axes[2].weight[k];
                });
            }
            for (int64_t d = 0; d < g.dims; ++d) store(dgrid + at * g.dims + d, slope[d]);
        }
    });
}

// sum is dx, zeroed, in the accumulating type. Each task owns a block of one sample's channels: the order of the sums is
// that of the points, on any number of threads.
template <int MODE, class T>
void input_gradient(const T* dy, const T* grid, accumulate_t<T>* sum, const Grid& g) {
    using A = accumulate_t<T>;
    const int64_t points = g.points(), blocks = (g.channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK;
    parallel_for(g.samples, 1, [&](int64_t first_sample, int64_t last_sample) {
        for (int64_t sample = first_sample; sample < last_sample; ++sample) {
            A* image = sum + sample * g.pixels() * g.channels;
            const T* from = dy + sample * points * g.channels;
            parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
                const int64_t c = begin * CHANNEL_BLOCK, width = std::min(g.channels, end * CHANNEL_BLOCK) - c;
                Axis<A> axes[3];
                Tap<A> taps[16];
                for (int64_t point = 0; point < points; ++point) {
                    axes_at<MODE>(g, grid, sample, point, axes);
                    const int64_t count = taps_of(g, axes, taps);
                    for (int64_t k = 0; k < count; ++k)
                        add_row(image + taps[k].row * g.channels + c, from + point * g.channels + c, taps[k].weight, width);
                }
            });
        }
    });
}

template <int MODE, class T>
void backward_as(const void* dy, const void* x, const void* grid, void* dx, void* dgrid, const Grid& g) {
    using A = accumulate_t<T>;
    const T *grad = static_cast<const T*>(dy), *points = static_cast<const T*>(grid);
    if (dx != nullptr) {
        const int64_t size = g.samples * g.pixels() * g.channels;
        if constexpr (std::is_same_v<T, A>) {
            std::fill(static_cast<A*>(dx), static_cast<A*>(dx) + size, A(0));
            input_gradient<MODE, T>(grad, points, static_cast<A*>(dx), g);
        } else {
            std::vector<A> sum(static_cast<size_t>(size), A(0));
            input_gradient<MODE, T>(grad, points, sum.data(), g);
            for (int64_t j = 0; j < size; ++j) store(static_cast<T*>(dx) + j, sum[static_cast<size_t>(j)]);
        }
    }
    grid_gradient<MODE>(grad, static_cast<const T*>(x), points, static_cast<T*>(dgrid), g);
}

// How many of `count` values are beyond `far`, or no numbers.
template <class T>
int64_t beyond(const T* values, int64_t count, accumulate_t<T> far) {
    int64_t found = 0;
    for (int64_t j = 0; j < count; ++j) found += !(std::abs(load(values + j)) <= far);
    return found;
}

template <class T>
void count_beyond(const void* grid, double far, int64_t* found, const Grid& g) {
    const auto limit = static_cast<accumulate_t<T>>(far);
    const T* from = static_cast<const T*>(grid);
    *found = 0;
    for (int64_t n = 0; n < g.samples; ++n)
        for (int64_t line = 0; line < g.out[0] * g.out[1]; ++line) {
            const T* at = from + n * g.stride[0] + line / g.out[1] * g.stride[1] + line % g.out[1] * g.stride[2];
            if (g.stride[4] == 1 && g.stride[3] == g.dims) {
                *found += beyond(at, g.out[2] * g.dims, limit);
                continue;
            }
            for (int64_t w = 0; w < g.out[2]; ++w)
                for (int64_t d = 0; d < g.dims; ++d) *found += beyond(at + w * g.stride[3] + d * g.stride[4], 1, limit);
        }
}

template <class T>
void forward(const void* x, const void* grid, void* y, const Grid& g) {
    if (g.mode == BILINEAR) forward_as<BILINEAR, T>(x, grid, y, g);
    if (g.mode == NEAREST) forward_as<NEAREST, T>(x, grid, y, g);
    if (g.mode == BICUBIC) forward_as<BICUBIC, T>(x, grid, y, g);
}

template <class T>
void backward(const void* dy, const void* x, const void* grid, void* dx, void* dgrid, const Grid& g) {
    if (g.mode == BILINEAR) backward_as<BILINEAR, T>(dy, x, grid, dx, dgrid, g);
    if (g.mode == NEAREST) backward_as<NEAREST, T>(dy, x, grid, dx, dgrid, g);
    if (g.mode == BICUBIC) backward_as<BICUBIC, T>(dy, x, grid, dx, dgrid, g);
}

Grid grid_of(const int64_t* s, int64_t mode, int64_t padding, int64_t align) {
    return {s[0],         s[1],           s[2], {s[3], s[4], s[5]}, {s[6], s[7], s[8]}, {s[9], s[10], s[11], s[12], s[13]},
            (int)mode, (int)padding, align != 0};
}

}  // namespace
}  // namespace nhwc

// found: how many coordinates of the grid are beyond `far`, or no numbers; sizes as below.
NHWC_EXPORT(grid_sample_beyond)(int dtype, const void* grid, double far, int64_t* found, const int64_t* sizes) {
    const nhwc::Grid g = nhwc::grid_of(sizes, nhwc::BILINEAR, nhwc::ZEROS, 0);
    NHWC_FOR_DTYPE(dtype, nhwc::count_beyond, grid, far, found, g)
}

// sizes: samples, channels, dimensions, input sizes (3), output sizes (3), the grid's strides (5).
NHWC_EXPORT(grid_sample_forward)(int dtype, const void* x, const void* grid, void* y, const int64_t* sizes, int64_t mode,
                                 int64_t padding, int64_t align) {
    const nhwc::Grid g = nhwc::grid_of(sizes, mode, padding, align);
    NHWC_FOR_DTYPE(dtype, nhwc::forward, x, grid, y, g)
}

NHWC_EXPORT(grid_sample_backward)(int dtype, const void* dy, const void* x, const void* grid, void* dx, void* dgrid,
                                  const int64_t* sizes, int64_t mode, int64_t padding, int64_t align) {
    const nhwc::Grid g = nhwc::grid_of(sizes, mode, padding, align);
    NHWC_FOR_DTYPE(dtype, nhwc::backward, dy, x, grid, dx, dgrid, g)
}
