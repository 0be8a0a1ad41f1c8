// What the convolutions by matrix products share: blocks of output pixels times blocks of panels, and their epilogue.
#pragma once

#include "activate.h"
#include "conv_rows.h"
#include "product.h"

namespace nhwc {
namespace engine {

// Conv::choice. A task is about block_rows output pixels by block_panels panels, which are counted through the groups.
// zeros: where x.c of them lie, in floats from the weight. The rest is the algorithm's own.
struct Choice {
    int64_t vectors, tall, block_rows, block_panels, depth_block, zeros, own[2];
};

inline const Choice& choice_of(const Conv& conv) { return reinterpret_cast<const Choice&>(conv.choice); }

// How many blocks of at most `size` there are; none has more than one item more than another.
inline int64_t blocks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// The tables of one task: a pointer per tap and row, then one per row into y and one into the addend.
struct Tables {
    const float** in;
    float** out;
    const float** addend;

    static int64_t bytes(int64_t taps, int64_t rows) { return ((taps + 2) * rows + 7) / 8 * 64; }
    Tables(char* scratch, int64_t taps, int64_t rows)
        : in(reinterpret_cast<const float**>(scratch)),
          out(reinterpret_cast<float**>(scratch) + taps * rows),
          addend(in + (taps + 1) * rows) {}
};

// A convolution, or one phase of a transposed one, whose rows are given by tables: its panels, weights and epilogue.
// weight: [group][panel][tap][channel][column], channels of one run.
class Products {
  public:
    Products(const Conv& conv, const Context& context, int64_t taps, int64_t channels)
        : conv_(conv),
          context_(context),
          choice_(choice_of(conv)),
          taps_(taps),
          channels_(channels),
          columns_(conv.y.c / conv.groups),
          panels_(columns_, choice_.vectors),
          bounds_(bounds_of(conv.epilogue)) {}

    int64_t unit_blocks() const { return blocks_of(units(), choice_.block_panels); }
    int64_t weights() const { return conv_.groups * taps_ * channels_ * panels_.padded(); }  // floats

    // One block of panels for pixels [begin, end) of y; tables.in is filled, the others are filled here.
    // addend: of the same pixels, or none.
    void run(const Tables& tables, const float* weight, const Rows& y, const Rows& addend, int64_t begin, int64_t end,
             int64_t unit_block) const {
        const Epilogue& epilogue = conv_.epilogue;
        const bool adds = addend.at.base >= 0, in_registers = is_in_registers(epilogue);
        const bool adds_later = adds && !in_registers && epilogue.addend_last;
        pixel_pointers(y, at(context_, y), begin, end, tables.out);
        if (adds) pixel_pointers<const float*>(addend, at(context_, addend), begin, end, tables.addend);
        const float* bias = conv_.bias.base < 0 ? nullptr : at(context_, conv_.bias);
        const bool clamps = epilogue.activation == CLAMP;
        const Finish finish{adds && !adds_later ? tables.addend : nullptr, epilogue.addend_last != 0,
                            clamps && epilogue.lo > -INFINITY, clamps && epilogue.hi < INFINITY, bounds_};
        const int64_t past = units() * (unit_block + 1) / unit_blocks();
        for (int64_t unit = units() * unit_block / unit_blocks(); unit < past;) {
            const int64_t group = unit / panels_.count, panel = unit % panels_.count;
            const int64_t count = std::min(panels_.count - panel, past - unit);
            const float* of_group = weight + group * taps_ * channels_ * panels_.padded();
            multiply_block(
                {tables.in, choice_.block_rows, taps_, group * channels_, channels_, of_group, bias, tables.out,
                 group * columns_, end - begin, panel, panel + count, choice_.tall, choice_.depth_block, finish},
                panels_);
            const int64_t first = panels_.first(panel),
                          width = std::min(panels_.first(panel + count), columns_) - first;
            if (!in_registers) finish_rows(tables, adds_later, end - begin, group * columns_ + first, width);
            unit += count;
        }
    }

  private:
    int64_t units() const { return panels_.count * conv_.groups; }

    // Activations that do not fit in registers, and an addend that comes after them.
    void finish_rows(const Tables& tables, bool adds, int64_t rows, int64_t column, int64_t columns) const {
        for (int64_t row = 0; row < rows; ++row) {
            float* to = tables.out[row] + column;
            activate(conv_.epilogue, context_, to, columns, column);
            if (!adds) continue;
            const float* from = tables.addend[row] + column;
            for (int64_t i = 0; i < columns; ++i) to[i] += from[i];
        }
    }

    const Conv& conv_;
    const Context& context_;
    const Choice& choice_;
    int64_t taps_, channels_, columns_;
    Panels panels_;
    Bounds bounds_;
};

}  // namespace engine
}  // namespace nhwc
