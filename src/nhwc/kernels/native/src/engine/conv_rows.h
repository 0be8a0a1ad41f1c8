// Where a convolution's output pixels lie and which inputs they read, as tables of pointers for product.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conv.h"

namespace nhwc {
namespace engine {

inline int64_t pixels(const Rows& rows) { return rows.n * rows.d * rows.h * rows.w; }

// The taps of one dimension: output place o reads the inputs o * stride + first + tap * step, tap < taps.
struct Axis {
    int64_t taps, first, step, stride;
};

inline Axis axis_of(const Conv& conv, int dimension) {
    return {conv.kernel[dimension], -conv.padding[dimension], conv.dilation[dimension], conv.stride[dimension]};
}

// body(first, n, d, h, w, count) for the runs of pixels [begin, end) that lie in one row of the picture each;
// first counts from begin.
template <class Body>
void each_run(const Rows& y, int64_t begin, int64_t end, const Body& body) {
    for (int64_t pixel = begin; pixel < end;) {
        const int64_t w = pixel % y.w, line = pixel / y.w;
        const int64_t h = line % y.h, plane = line / y.h;
        const int64_t count = std::min(y.w - w, end - pixel);
        body(pixel - begin, plane / y.d, plane % y.d, h, w, count);
        pixel += count;
    }
}

// table[i] = the pixel begin + i of rows.
template <class Pointer>
void pixel_pointers(const Rows& rows, Pointer base, int64_t begin, int64_t end, Pointer* table) {
    each_run(rows, begin, end, [&](int64_t first, int64_t n, int64_t d, int64_t h, int64_t w, int64_t count) {
        Pointer from = base + n * rows.sn + d * rows.sd + h * rows.sh + w * rows.sw;
        for (int64_t i = 0; i < count; ++i, from += rows.sw) table[first + i] = from;
    });
}

// table[tap * step + i] = the pixel of `in`, which lies at x, that the tap reads for pixel begin + i of y, or zeros.
inline void tap_pointers(const Rows& in, const float* x, const float* zeros, const Axis (&axes)[3], const Rows& y,
                         int64_t begin, int64_t end, int64_t step, const float** table) {
    const int64_t stride = axes[2].stride, leap = stride * in.sw;
    each_run(y, begin, end, [&](int64_t first, int64_t n, int64_t d, int64_t h, int64_t w, int64_t count) {
        const float** to = table + first;
        for (int64_t kd = 0; kd < axes[0].taps; ++kd) {
            const int64_t id = d * axes[0].stride + axes[0].first + kd * axes[0].step;
            for (int64_t kh = 0; kh < axes[1].taps; ++kh) {
                const int64_t ih = h * axes[1].stride + axes[1].first + kh * axes[1].step;
                const bool inside = id >= 0 && id < in.d && ih >= 0 && ih < in.h;
                const int64_t line = n * in.sn + id * in.sd + ih * in.sh;
                for (int64_t kw = 0; kw < axes[2].taps; ++kw, to += step) {
                    const int64_t iw = w * stride + axes[2].first + kw * axes[2].step;  // of the run's first
                    // pixels [left, right) of the run lie inside the picture
                    int64_t left = count, right = count;
                    if (inside && iw < in.w) {
                        left = iw >= 0 ? 0 : std::min(count, (stride - 1 - iw) / stride);
                        right = std::max(left, std::min(count, (in.w - 1 - iw) / stride + 1));
                    }
                    std::fill(to, to + left, zeros);
                    const float* from = x + line + (iw + left * stride) * in.sw;
                    for (int64_t i = left; i < right; ++i, from += leap) to[i] = from;
                    std::fill(to + right, to + count, zeros);
                }
            }
        }
    });
}

}  // namespace engine
}  // namespace nhwc
