// The part of conv_blocks.h that is compiled once, for all convolutions by products.
#include "conv_blocks.h"

#include "activate.h"

namespace nhwc {
namespace engine {

void Outputs::finish_rows(int64_t column, int64_t columns) const {
    if (is_in_registers(conv_.epilogue)) return;
    for (int64_t row = 0; row < rows_; ++row) {
        float* to = tables_.out[row] + column;
        activate(conv_.epilogue, context_, to, columns, column);
        if (!adds_later_) continue;
        const float* from = tables_.addend[row] + column;
        for (int64_t i = 0; i < columns; ++i) to[i] += from[i];
    }
}

void Products::run(const Tables& tables, const float* weight, const Rows& y, const Rows& addend, int64_t begin,
                   int64_t end, int64_t unit_block) const {
    const Outputs outputs(conv_, context_, tables, y, addend, begin, end);
    const float* bias = conv_.bias.base < 0 ? nullptr : at(context_, conv_.bias);
    const int64_t past = units() * (unit_block + 1) / unit_blocks();
    for (int64_t unit = units() * unit_block / unit_blocks(); unit < past;) {
        const int64_t group = unit / panels_.count, panel = unit % panels_.count;
        const int64_t count = std::min(panels_.count - panel, past - unit);
        const float* of_group = weight + group * taps_ * channels_ * panels_.padded();
        multiply_block(
            {tables.in, choice_.block_rows, taps_, group * channels_, channels_, of_group, bias, tables.out,
             group * columns_, end - begin, panel, panel + count, choice_.tall, choice_.depth_block, outputs.finish},
            panels_);
        const int64_t first = panels_.first(panel);
        outputs.finish_rows(group * columns_ + first, std::min(panels_.first(panel + count), columns_) - first);
        unit += count;
    }
}

}  // namespace engine
}  // namespace nhwc
