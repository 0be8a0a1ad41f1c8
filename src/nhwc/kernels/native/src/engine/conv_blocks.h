// What the convolutions by matrix products share: blocks of output pixels times blocks of panels, and their epilogue.
#pragma once

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

// Where a block of pixels [begin, end) of y goes, and its epilogue: the tables of one task filled for it.
class Outputs {
  public:
    Finish finish;  // what the kernels do in registers

    Outputs(const Conv& conv, const Context& context, const Tables& tables, const Rows& y, const Rows& addend,
            int64_t begin, int64_t end)
        : conv_(conv), context_(context), tables_(tables), rows_(end - begin) {
        const Epilogue& epilogue = conv.epilogue;
        const bool adds = addend.at.base >= 0, clamps = epilogue.activation == CLAMP;
        adds_later_ = adds && !is_in_registers(epilogue) && epilogue.addend_last;
        pixel_pointers(y, at(context, y), begin, end, tables.out);
        if (adds) pixel_pointers<const float*>(addend, at(context, addend), begin, end, tables.addend);
        finish.addend = adds && !adds_later_ ? tables.addend : nullptr;
        finish.addend_last = epilogue.addend_last != 0;
        finish.has_lo = clamps && epilogue.lo > -std::numeric_limits<double>::infinity();
        finish.has_hi = clamps && epilogue.hi < std::numeric_limits<double>::infinity();
        finish.bounds = bounds_of(epilogue);
    }

    // Activations that do not fit in registers, and an addend that comes after them, for columns that are stored.
    void finish_rows(int64_t column, int64_t columns) const;

  private:
    const Conv& conv_;
    const Context& context_;
    const Tables& tables_;
    int64_t rows_;
    bool adds_later_;
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
          panels_(columns_, choice_.vectors) {}

    int64_t unit_blocks() const { return blocks_of(units(), choice_.block_panels); }
    int64_t weights() const { return conv_.groups * taps_ * channels_ * panels_.padded(); }  // floats

    // One block of panels for pixels [begin, end) of y; tables.in is filled, the others are filled here.
    // addend: of the same pixels, or none.
    void run(const Tables& tables, const float* weight, const Rows& y, const Rows& addend, int64_t begin, int64_t end,
             int64_t unit_block) const;

  private:
    int64_t units() const { return panels_.count * conv_.groups; }

    const Conv& conv_;
    const Context& context_;
    const Choice& choice_;
    int64_t taps_, channels_, columns_;
    Panels panels_;
};

}  // namespace engine
}  // namespace nhwc
