// Direct convolution: a matrix product over the input's rows as they lie, 1x1 or through a table of pointers per tap.
#include "activate.h"
#include "conv_rows.h"
#include "product.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

// Conv::choice. A task is about block_rows output pixels by block_panels panels; panels count through the groups.
// zeros: where x.c of them lie, in floats from the weight, which is packed [group][panel][tap][channel][column].
struct Choice {
    int64_t vectors, tall, block_rows, block_panels, depth_block, zeros;
};

// Bytes of a slot's scratch are those of its tables: taps + 2 pointers for each row of a block.
int64_t table_pointers(int64_t taps, int64_t rows) { return ((taps + 2) * rows + 7) / 8 * 8; }

// Activations that do not fit in registers, and an addend that comes after them.
void finish_rows(const Conv& conv, const Context& context, float* const* out, const float* const* addend, int64_t rows,
                 int64_t column, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
        float* to = out[row] + column;
        activate(conv.epilogue, context, to, columns, column);
        if (addend == nullptr) continue;
        const float* from = addend[row] + column;
        for (int64_t i = 0; i < columns; ++i) to[i] += from[i];
    }
}

}  // namespace

NHWC_STEP(conv_direct, Conv) {
    const Conv& conv = parameters;
    const auto& choice = reinterpret_cast<const Choice&>(conv.choice);
    const Rows& y = conv.y;
    const int64_t taps = conv.kernel[0] * conv.kernel[1] * conv.kernel[2];
    const int64_t channels = conv.x.c / conv.groups, columns = y.c / conv.groups;
    const Panels panels(columns, choice.vectors);
    const int64_t all = pixels(y), units = panels.count * conv.groups;
    const int64_t row_blocks = (all + choice.block_rows - 1) / choice.block_rows;
    const int64_t unit_blocks = (units + choice.block_panels - 1) / choice.block_panels;
    const int64_t step = choice.block_rows;
    const float* x = at(context, conv.x);
    const float* weight = at(context, conv.weight);
    const Epilogue& epilogue = conv.epilogue;
    const bool adds = epilogue.addend.at.base >= 0, in_registers = is_in_registers(epilogue);
    const Bounds bounds = bounds_of(epilogue);
    const float* bias = conv.bias.base < 0 ? nullptr : at(context, conv.bias);

    tasks(context, row_blocks * unit_blocks, [&](int64_t task, int64_t slot) {
        const int64_t row_block = task / unit_blocks, unit_block = task % unit_blocks;
        const int64_t begin = all * row_block / row_blocks, end = all * (row_block + 1) / row_blocks;
        const float** table = reinterpret_cast<const float**>(context.scratch) + slot * table_pointers(taps, step);
        float** out = const_cast<float**>(table + taps * step);
        const float** addend = table + (taps + 1) * step;
        tap_pointers(conv, x, weight + choice.zeros, begin, end, step, table);
        pixel_pointers(y, at(context, y), begin, end, out);
        if (adds) {
            Rows rows = epilogue.addend;
            pixel_pointers(rows, const_cast<const float*>(at(context, rows)), begin, end, addend);
        }
        const bool adds_later = adds && !in_registers && epilogue.addend_last;
        const Finish finish{bias, adds && !adds_later ? addend : nullptr, epilogue.addend_last != 0, bounds};
        const int64_t past = units * (unit_block + 1) / unit_blocks;
        for (int64_t unit = units * unit_block / unit_blocks; unit < past;) {
            const int64_t group = unit / panels.count, panel = unit % panels.count;
            const int64_t count = std::min(panels.count - panel, past - unit);
            const float* of_group = weight + group * taps * channels * panels.padded();
            multiply_block({table, step, taps, group * channels, channels, of_group, out, group * columns, end - begin,
                            panel, panel + count, choice.tall, choice.depth_block, finish},
                           panels);
            const int64_t column = group * columns + panels.first(panel);
            const int64_t width = std::min(panels.first(panel + count), columns) - panels.first(panel);
            if (!in_registers)
                finish_rows(conv, context, out, adds_later ? addend : nullptr, end - begin, column, width);
            unit += count;
        }
    });
}

}  // namespace engine
}  // namespace nhwc
