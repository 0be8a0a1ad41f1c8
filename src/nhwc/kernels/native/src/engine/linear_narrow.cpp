// A linear layer of few rows on weights of 16 bits: how fast they come from memory is what bounds it.
#include <array>
#include <utility>

#include "conv_rows.h"
#include "halves.h"
#include "late.h"
#include "product.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int MOST_ROWS = 4;
// Channels whose products are summed before they go to the total: errors grow with it, not with the whole depth.
constexpr int64_t DEPTH = 256;
// Steps by which weights are fetched before they are read.
constexpr int FAR_AHEAD = 16;

// total[row][vector] = the sum over `depth` channels of rows times [channel][column].
template <class Half, int MR, int NV>
void multiply(const float* const* rows, const uint16_t* weight, int64_t depth, float* const* out, int64_t column,
              int64_t last) {
    vf total[MR][NV]{};
    for (int64_t k = 0; k < depth; k += DEPTH) {
        vf sums[MR][NV]{};
        const int64_t end = std::min(depth, k + DEPTH);
#pragma GCC unroll 1
        for (int64_t c = k; c < end; ++c, weight += NV * LANES) {
            vf w[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) w[j] = Half::widened(weight + j * LANES);
#pragma GCC unroll 4
            for (int j = 0; j < NV; j += 2) __builtin_prefetch(weight + (FAR_AHEAD * NV + j) * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < MR; ++i) {
                const vf value = splat(rows[i][c]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) sums[i][j] += value * w[j];
            }
        }
        for (int i = 0; i < MR; ++i)
            for (int j = 0; j < NV; ++j) total[i][j] += sums[i][j];
    }
    for (int i = 0; i < MR; ++i)
        for (int j = 0; j < NV; ++j) {
            float* to = out[i] + column + j * LANES;
            if (j == NV - 1 && last < LANES)
                store_part(to, total[i][j], last);
            else
                store(to, total[i][j]);
        }
}

using multiply_t = void (*)(const float* const*, const uint16_t*, int64_t, float* const*, int64_t, int64_t);

template <class Half, int... I>
constexpr std::array<multiply_t, sizeof...(I)> kernels(std::integer_sequence<int, I...>) {
    return {&multiply<Half, I / MOST_VECTORS + 1, I % MOST_VECTORS + 1>...};
}

template <class Half>
multiply_t multiplier_of(int64_t rows, int64_t vectors) {
    constexpr auto all = kernels<Half>(std::make_integer_sequence<int, MOST_ROWS * MOST_VECTORS>{});
    return all[static_cast<size_t>((rows - 1) * MOST_VECTORS + vectors - 1)];
}

}  // namespace

// weight: [panel][channel][column] of 16 bits. choice: [0] vectors of a panel, [6] 0 (bfloat16) or 1 (float16).
NHWC_STEP(linear_narrow, Conv) {
    const Conv& conv = parameters;
    const Panels panels(conv.y.c, conv.choice[0]);
    const auto* weight = reinterpret_cast<const uint16_t*>(at(context, conv.weight));
    const float* bias = conv.bias.base < 0 ? nullptr : at(context, conv.bias);
    const Epilogue& epilogue = conv.epilogue;
    const Rows& more = epilogue.addend;
    const bool adds = more.at.base >= 0, adds_last = epilogue.addend_last != 0;
    const int64_t rows = pixels(conv.y), blocks = (rows + MOST_ROWS - 1) / MOST_ROWS;

    tasks(context, panels.count, [&](int64_t panel, int64_t) {
        const int64_t first = panels.first(panel), vectors = panels.vectors(panel);
        const int64_t columns = (vectors - 1) * LANES + panels.last(panel);
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t begin = rows * block / blocks, count = rows * (block + 1) / blocks - begin;
            const float *in[MOST_ROWS], *added[MOST_ROWS];
            float* out[MOST_ROWS];
            pixel_pointers<const float*>(conv.x, at(context, conv.x), begin, begin + count, in);
            pixel_pointers(conv.y, at(context, conv.y), begin, begin + count, out);
            if (adds) pixel_pointers<const float*>(more, at(context, more), begin, begin + count, added);
            const auto find = conv.choice[6] == 0 ? &multiplier_of<BFloat16> : &multiplier_of<Float16>;
            find(count, vectors)(in, weight + first * conv.x.c, conv.x.c, out, first, panels.last(panel));
            for (int64_t i = 0; i < count; ++i) {
                float* to = out[i] + first;
                if (bias != nullptr)
                    for (int64_t c = 0; c < columns; ++c) to[c] += bias[first + c];
                if (adds && !adds_last)
                    for (int64_t c = 0; c < columns; ++c) to[c] += added[i][first + c];
                activate_late(epilogue, context, to, adds && adds_last ? added[i] + first : nullptr, columns, first);
            }
        }
    });
}

}  // namespace engine
}  // namespace nhwc
