// Direct convolution: a matrix product over the input's rows as they lie, 1x1 or through a table of pointers per tap.
#include "conv_blocks.h"
#include "tasks.h"

namespace nhwc {
namespace engine {

NHWC_STEP(conv_direct, Conv) {
    const Conv& conv = parameters;
    const Choice& choice = choice_of(conv);
    const Axis axes[3] = {axis_of(conv, 0), axis_of(conv, 1), axis_of(conv, 2)};
    const int64_t taps = axes[0].taps * axes[1].taps * axes[2].taps;
    const Products products(conv, context, taps, conv.x.c / conv.groups);
    const int64_t all = pixels(conv.y), row_blocks = blocks_of(all, choice.block_rows);
    const int64_t unit_blocks = products.unit_blocks();
    const float *x = at(context, conv.x), *weight = at(context, conv.weight);

    tasks(context, row_blocks * unit_blocks, [&](int64_t task, int64_t slot) {
        const int64_t block = task / unit_blocks;
        const int64_t begin = all * block / row_blocks, end = all * (block + 1) / row_blocks;
        const Tables tables(context.scratch + slot * Tables::bytes(taps, choice.block_rows), taps, choice.block_rows);
        tap_pointers(conv.x, x, weight + choice.zeros, axes, conv.y, begin, end, choice.block_rows, tables.in);
        products.run(tables, weight, conv.y, conv.epilogue.addend, begin, end, task % unit_blocks);
    });
}

}  // namespace engine
}  // namespace nhwc
