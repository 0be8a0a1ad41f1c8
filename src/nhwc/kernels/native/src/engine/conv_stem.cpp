// The first convolution of a network: a few channels, in any strides (pictures come as planes too).
//
// The rows that a task reads are copied to scratch with their padding, channels together: the taps of a kernel row are
// then one run of kernel width times channels, and the product's loop is long enough.
#include "conv_blocks.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

// Rows of input that `lines` rows of output read, and places in each.
struct Window {
    int64_t lines, rows, width;

    Window(const Conv& conv, int64_t lines)
        : lines(lines),
          rows((lines - 1) * conv.stride[1] + (conv.kernel[1] - 1) * conv.dilation[1] + 1),
          width((conv.y.w - 1) * conv.stride[2] + conv.kernel[2]) {}
    int64_t bytes(const Conv& conv) const {
        return (conv.kernel[0] * rows * width * conv.x.c * int64_t{sizeof(float)} + 63) / 64 * 64;
    }
};

template <int CHANNELS>
void copy_places(const float* from, int64_t sw, int64_t sc, float* to, int64_t count) {
    if (sc == 1 && sw == CHANNELS) {
        std::copy(from, from + count * CHANNELS, to);
        return;
    }
    const float* plane[CHANNELS];
    for (int c = 0; c < CHANNELS; ++c) plane[c] = from + c * sc;
    if (sw == 1) {
        for (int64_t i = 0; i < count; ++i)
            for (int c = 0; c < CHANNELS; ++c) to[i * CHANNELS + c] = plane[c][i];
        return;
    }
    for (int64_t i = 0; i < count; ++i)
        for (int c = 0; c < CHANNELS; ++c) to[i * CHANNELS + c] = plane[c][i * sw];
}

void copy_places(const Rows& x, const float* from, float* to, int64_t count) {
    switch (x.c) {
        case 1:
            return copy_places<1>(from, x.sw, x.sc, to, count);
        case 2:
            return copy_places<2>(from, x.sw, x.sc, to, count);
        case 3:
            return copy_places<3>(from, x.sw, x.sc, to, count);
        default:
            return copy_places<4>(from, x.sw, x.sc, to, count);
    }
}

// The input rows from (id, ih) on of picture n, with zeros where there is no picture.
void copy_window(const Conv& conv, const float* x, int64_t n, int64_t d, int64_t line, const Window& window,
                 float* to) {
    const Rows& in = conv.x;
    const int64_t before = std::min(conv.padding[2], window.width);
    const int64_t inside = std::max<int64_t>(0, std::min(in.w, window.width - before));
    for (int64_t kd = 0; kd < conv.kernel[0]; ++kd) {
        const int64_t id = d * conv.stride[0] - conv.padding[0] + kd * conv.dilation[0];
        for (int64_t row = 0; row < window.rows; ++row, to += window.width * in.c) {
            const int64_t ih = line * conv.stride[1] - conv.padding[1] + row;
            if (id < 0 || id >= in.d || ih < 0 || ih >= in.h) {
                std::fill(to, to + window.width * in.c, 0.0f);
                continue;
            }
            std::fill(to, to + before * in.c, 0.0f);
            copy_places(in, x + n * in.sn + id * in.sd + ih * in.sh, to + before * in.c, inside);
            std::fill(to + (before + inside) * in.c, to + window.width * in.c, 0.0f);
        }
    }
}

}  // namespace

// choice.own[0]: output rows of a task; block_rows = that times y.w. No groups, no dilation of the width.
NHWC_STEP(conv_stem, Conv) {
    const Conv& conv = parameters;
    const Choice& choice = choice_of(conv);
    const Rows& y = conv.y;
    const int64_t lines = choice.own[0], taps = conv.kernel[0] * conv.kernel[1], step = choice.block_rows;
    const Window window(conv, lines);
    const Products products(conv, context, taps, conv.kernel[2] * conv.x.c);
    const int64_t blocks = blocks_of(y.h, lines), table_bytes = Tables::bytes(taps, step);
    const float *x = at(context, conv.x), *weight = at(context, conv.weight);

    tasks(context, y.n * y.d * blocks, [&](int64_t task, int64_t slot) {
        const int64_t plane = task / blocks, block = task % blocks;
        const int64_t first = y.h * block / blocks, past = y.h * (block + 1) / blocks;
        char* scratch = context.scratch + slot * (table_bytes + window.bytes(conv));
        float* copied = reinterpret_cast<float*>(scratch + table_bytes);
        copy_window(conv, x, plane / y.d, plane % y.d, first, Window(conv, past - first), copied);
        const Tables tables(scratch, taps, step);
        const int64_t rows = Window(conv, past - first).rows, row_floats = window.width * conv.x.c;
        const float** to = tables.in;
        for (int64_t kd = 0; kd < conv.kernel[0]; ++kd)
            for (int64_t kh = 0; kh < conv.kernel[1]; ++kh, to += step)
                for (int64_t line = 0; line < past - first; ++line) {
                    const int64_t row = kd * rows + line * conv.stride[1] + kh * conv.dilation[1];
                    for (int64_t w = 0; w < y.w; ++w)
                        to[line * y.w + w] = copied + row * row_floats + w * conv.stride[2] * conv.x.c;
                }
        const int64_t line = plane * y.h + first;
        for (int64_t unit_block = 0; unit_block < products.unit_blocks(); ++unit_block)
            products.run(tables, weight, y, conv.epilogue.addend, line * y.w, (line + past - first) * y.w, unit_block);
    });
}

}  // namespace engine
}  // namespace nhwc
