// The matrix product under 1x1, k x k, grouped and Winograd convolution and Linear: a tile of rows times a panel of
// columns.
//
// A row is one run of contiguous channels per tap, reached by a pointer: nothing is copied, whatever kernel, stride or
// padding lies behind it. The weights are packed in panels of a few vectors of columns, [panel][tap][channel][column],
// so that a tile reads them straight through. Per row and channel there is one broadcast and a multiplication per
// vector: 6 rows by 4 vectors and 8 by 3 measure alike with 32 registers (10 or 11 loads for 24 multiplications);
// taller and narrower tiles (14 by 2, 28 by 1) lose 5 to 20 %, since their row pointers or their loads no longer fit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "epilogue.h"
#include "simd.h"

namespace nhwc {
namespace engine {

constexpr int MOST_VECTORS = 4;

// Rows of the tallest tile for a panel of so many vectors: sums, one panel row and a broadcast fit the registers. Arm
// multiplies by one lane of a register, and GCC loads those of all rows first: they need room too.
constexpr int most_rows(int vectors) {
    constexpr int many[] = {12, 12, 8, 6}, lanewise[] = {12, 9, 7, 5}, few[] = {8, 6, 4, 2};
    return REGISTERS == 16 ? few[vectors - 1] : LANES == 4 ? lanewise[vectors - 1] : many[vectors - 1];
}

// How columns are cut into panels: as few as `vectors` allows, whose widths differ by one vector at most, wide ones
// first.
struct Panels {
    int64_t count, narrow, wide;  // narrow: vectors of the narrow ones; the first `wide` have one more
    int64_t columns;

    Panels(int64_t columns, int64_t vectors) : columns(columns) {
        const int64_t all = (columns + LANES - 1) / LANES;
        count = (all + vectors - 1) / vectors;
        narrow = count > 0 ? all / count : 0;
        wide = all - narrow * count;
    }
    int64_t padded() const { return first(count); }  // columns in whole vectors
    int64_t vectors(int64_t panel) const { return narrow + (panel < wide); }
    int64_t first(int64_t panel) const { return (panel * narrow + std::min(panel, wide)) * LANES; }  // its first column
    // columns of a panel's last vector, which the others have in full
    int64_t last(int64_t panel) const {
        const int64_t past = first(panel) + vectors(panel) * LANES - columns;
        return past > 0 ? LANES - past : LANES;
    }
};

// What happens in the last pass over a tile. addend: a row each, or null.
struct Finish {
    const float* const* addend;
    bool addend_last;
    bool has_lo, has_hi;
    Bounds bounds;
};

// One call of a microkernel: out[row][column ...] = (bias, or what is there) + sum over taps and channels, finished or
// not.
struct Tile {
    const float* const* rows;  // of tap 0; those of the next tap lie `tap_step` pointers on
    int64_t tap_step, taps;
    int64_t channel, channels;  // the first one, and how many, of every run
    const float* weight;        // [tap][channel][column], from that channel on
    const float* bias;          // padded to whole vectors, or null
    float* const* out;
    int64_t column;        // the panel's first, in out, bias and addend
    int64_t last;          // columns of the last vector, 1 to LANES
    bool add;              // to what is in out; there is no bias then
    bool fetches;          // out is likely not in the cache
    const Finish* finish;  // null: this is not the last pass
    // What is read after this tile: one line a step is fetched, `leap` floats on each time. Without it the weights of a
    // panel come from memory in step with the first tile only, which costs a third at 7x7.
    const float* ahead;  // null: nothing is
    int64_t leap;
};

using multiply_t = void (*)(const Tile& tile);

// The microkernel of 1 to most_rows(vectors) rows and 1 to MOST_VECTORS vectors.
multiply_t multiplier(int64_t rows, int64_t vectors);

// A block of rows times some panels, in passes over the depth; rows, taps, weight, out as in Tile, of the first panel
// of them all. channels: of a whole run.
struct Block {
    const float* const* rows;
    int64_t tap_step, taps;
    int64_t channel, channels;
    const float* weight;
    const float* bias;
    float* const* out;
    int64_t column;  // of panel 0, in out, bias and addend
    int64_t count;   // rows
    int64_t first_panel, past_panel;
    int64_t tall;         // rows of a tile, at most
    int64_t depth_block;  // of taps x channels; a pass takes whole taps, or a part of one
    Finish finish;
};
void multiply_block(const Block& block, const Panels& panels);

// c (rows x columns) = or, with add, += a (rows x depth) times b, packed in Panels(columns, vectors), in blocks of
// depth_block. Rows of a and c lie a_stride and c_stride floats apart; memory past a row's last column is not touched.
void product(const float* a, int64_t a_stride, const float* b, float* c, int64_t c_stride, int64_t rows, int64_t depth,
             int64_t columns, int64_t vectors, int64_t depth_block, bool add);

}  // namespace engine
}  // namespace nhwc
