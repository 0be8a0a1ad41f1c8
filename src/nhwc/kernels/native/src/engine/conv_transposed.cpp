// Transposed convolution, gathered: output places that agree modulo the stride read the same taps of the kernel, so
// each such phase is a direct convolution of stride 1 whose results lie a stride apart.
#include <numeric>

#include "conv_blocks.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

// Output o receives input i by tap k where o = i stride - padding + k dilation; of phase o % stride are the taps
// k0, k0 + every, ...: i = o / stride + (phase + padding - k dilation) / stride.
Axis phase_axis(const Conv& conv, int dimension, int64_t phase) {
    const int64_t stride = conv.stride[dimension], dilation = conv.dilation[dimension];
    const int64_t from = phase + conv.padding[dimension], every = stride / std::gcd(stride, dilation);
    int64_t first = 0;
    while (first < every && (from - first * dilation) % stride != 0) ++first;
    const int64_t kernel = first < every ? conv.kernel[dimension] : 0;
    const int64_t taps = kernel > first ? (kernel - first + every - 1) / every : 0;
    return {taps, (from - first * dilation) / stride, -every * dilation / stride, 1};
}

// The places of rows at the phases, as rows.
Rows phase_rows(const Rows& rows, const int64_t (&stride)[3], const int64_t (&phase)[3]) {
    Rows of = rows;
    if (rows.at.base < 0) return of;
    of.at.offset +=
        (phase[0] * rows.sd + phase[1] * rows.sh + phase[2] * rows.sw) * static_cast<int64_t>(sizeof(float));
    of.d = (rows.d - phase[0] + stride[0] - 1) / stride[0];
    of.h = (rows.h - phase[1] + stride[1] - 1) / stride[1];
    of.w = (rows.w - phase[2] + stride[2] - 1) / stride[2];
    of.sd *= stride[0], of.sh *= stride[1], of.sw *= stride[2];
    return of;
}

}  // namespace

// weight: phases one after the other, the width's fastest, each packed as Products has it with its own taps in
// ascending order.
NHWC_STEP(conv_transposed, Conv) {
    const Conv& conv = parameters;
    const Choice& choice = choice_of(conv);
    const float* weight = at(context, conv.weight);
    const int64_t all_taps = conv.kernel[0] * conv.kernel[1] * conv.kernel[2];
    const int64_t channels = conv.x.c / conv.groups, rows = choice.block_rows;
    const float* zeros = weight + choice.zeros;
    for (int64_t pd = 0; pd < conv.stride[0]; ++pd)
        for (int64_t ph = 0; ph < conv.stride[1]; ++ph)
            for (int64_t pw = 0; pw < conv.stride[2]; ++pw) {
                const Axis axes[3] = {phase_axis(conv, 0, pd), phase_axis(conv, 1, ph), phase_axis(conv, 2, pw)};
                const int64_t taps = axes[0].taps * axes[1].taps * axes[2].taps;
                const Rows y = phase_rows(conv.y, conv.stride, {pd, ph, pw});
                const Rows addend = phase_rows(conv.epilogue.addend, conv.stride, {pd, ph, pw});
                const Products products(conv, context, taps, channels);
                const int64_t all = pixels(y), row_blocks = blocks_of(all, rows);
                const int64_t unit_blocks = products.unit_blocks();
                tasks(context, row_blocks * unit_blocks, [&](int64_t task, int64_t slot) {
                    const int64_t block = task / unit_blocks;
                    const int64_t begin = all * block / row_blocks, end = all * (block + 1) / row_blocks;
                    const Tables tables(context.scratch + slot * Tables::bytes(all_taps, rows), taps, rows);
                    tap_pointers(conv.x, at(context, conv.x), zeros, axes, y, begin, end, rows, tables.in);
                    products.run(tables, weight, y, addend, begin, end, task % unit_blocks);
                });
                weight += products.weights();
            }
}

}  // namespace engine
}  // namespace nhwc
