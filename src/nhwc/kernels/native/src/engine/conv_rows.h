// Where a convolution's output pixels lie and which inputs they read, as tables of pointers for product.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conv.h"

namespace nhwc {
namespace engine {

inline int64_t pixels(const Rows& rows) { return rows.n * rows.d * rows.h * rows.w; }

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

// table[tap * step + i] = the input pixel under that tap for output pixel begin + i, or zeros where it is padding.
inline void tap_pointers(const Conv& conv, const float* x, const float* zeros, int64_t begin, int64_t end, int64_t step,
                         const float** table) {
    const Rows& in = conv.x;
    const int64_t stride = conv.stride[2];
    each_run(conv.y, begin, end, [&](int64_t first, int64_t n, int64_t d, int64_t h, int64_t w, int64_t count) {
        const float** to = table + first;
        for (int64_t kd = 0; kd < conv.kernel[0]; ++kd) {
            const int64_t id = d * conv.stride[0] - conv.padding[0] + kd * conv.dilation[0];
            for (int64_t kh = 0; kh < conv.kernel[1]; ++kh) {
                const int64_t ih = h * conv.stride[1] - conv.padding[1] + kh * conv.dilation[1];
                const bool inside = id >= 0 && id < in.d && ih >= 0 && ih < in.h;
                const float* line = x + n * in.sn + id * in.sd + ih * in.sh;
                for (int64_t kw = 0; kw < conv.kernel[2]; ++kw, to += step) {
                    const int64_t iw = w * stride - conv.padding[2] + kw * conv.dilation[2];  // of the run's first
                    // pixels [left, right) of the run lie inside the picture
                    const int64_t left = !inside ? count : iw >= 0 ? 0 : std::min(count, (stride - 1 - iw) / stride);
                    const int64_t right =
                        !inside || iw >= in.w ? left : std::max(left, std::min(count, (in.w - 1 - iw) / stride + 1));
                    std::fill(to, to + left, zeros);
                    const int64_t leap = stride * in.sw;
                    const float* from = line + (iw + left * stride) * in.sw;
                    for (int64_t i = left; i < right; ++i, from += leap) to[i] = from;
                    std::fill(to + right, to + count, zeros);
                }
            }
        }
    });
}

}  // namespace engine
}  // namespace nhwc
