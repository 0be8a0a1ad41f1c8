// The microkernels of product.h, one per tile shape, and the plain product of matrices over them.
#include "product.h"

#include <array>
#include <utility>

#include "../export.h"

namespace nhwc {
namespace engine {
namespace {

// Floats of weights that stay in a core's cache beside the rows: then it is the rows that need fetching ahead.
constexpr int64_t CACHED_WEIGHTS = 128 * 1024;

// So few rows use each weight once or twice: what bounds them is how fast weights come, which are fetched so many steps
// ahead instead.
constexpr int FEW_ROWS = 2, FAR_AHEAD = 16;

template <int MR, int NV>
void multiply(const Tile& tile) {
    vf sums[MR][NV];
    const auto each = [&](const auto& body) {
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) body(i, j, sums[i][j]);
    };
    const bool whole = tile.last == LANES;
    const auto read = [&](const float* row, int j) {
        const float* from = row + tile.column + j * LANES;
        return j == NV - 1 && !whole ? load_part(from, tile.last) : load(from);
    };

    each([](int, int, vf& sum) { sum = vf{}; });
    const Finish* finish = tile.finish;
    const bool adds = finish != nullptr && finish->addend != nullptr;
    // in loops of their own: GCC takes a lambda that only fetches for one that does nothing
    if (tile.fetches)
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) __builtin_prefetch(tile.out[i] + tile.column + j * LANES, 1);
    if (adds)
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) __builtin_prefetch(finish->addend[i] + tile.column + j * LANES);

    const float* weight = tile.weight;
    const float* ahead = tile.ahead == nullptr ? weight : tile.ahead;
    const int64_t leap = tile.leap;
    const float* const* table = tile.rows;
    const int64_t channels = tile.channels;
    for (int64_t tap = 0; tap < tile.taps; ++tap, table += tile.tap_step) {
        const float* row[MR];
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) row[i] = table[i] + tile.channel;
#pragma GCC unroll 1
        for (int64_t c = 0; c < channels; ++c, weight += NV * LANES, ahead += leap) {
            vf w[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) w[j] = load(weight + j * LANES);
            if constexpr (MR <= FEW_ROWS) {
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) __builtin_prefetch(weight + (FAR_AHEAD * NV + j) * LANES);
            } else {
                __builtin_prefetch(ahead);
            }
#pragma GCC unroll 16
            for (int i = 0; i < MR; ++i) {
                const vf value = splat(row[i][c]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) sums[i][j] += value * w[j];
            }
        }
    }

    // Each change goes over all sums, so that its question is asked once a tile. What earlier passes left and the bias
    // come after this pass's own sum: errors grow with the depth of a pass, not of the whole product.
    if (tile.add) each([&](int i, int j, vf& sum) { sum += read(tile.out[i], j); });
    if (tile.bias != nullptr) each([&](int, int j, vf& sum) { sum += load(tile.bias + tile.column + j * LANES); });
    if (finish != nullptr) {
        if (adds && !finish->addend_last) each([&](int i, int j, vf& sum) { sum += read(finish->addend[i], j); });
        if (finish->has_lo) each([&](int, int, vf& sum) { sum = at_least(sum, finish->bounds.lo); });
        if (finish->has_hi) each([&](int, int, vf& sum) { sum = at_most(sum, finish->bounds.hi); });
        if (adds && finish->addend_last) each([&](int i, int j, vf& sum) { sum += read(finish->addend[i], j); });
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
        float* out = tile.out[i] + tile.column;
#pragma GCC unroll 4
        for (int j = 0; j < NV - 1; ++j) store(out + j * LANES, sums[i][j]);
        if (whole)
            store(out + (NV - 1) * LANES, sums[i][NV - 1]);
        else
            store_part(out + (NV - 1) * LANES, sums[i][NV - 1], tile.last);
    }
}

template <int NV, int... LESS>
constexpr std::array<multiply_t, sizeof...(LESS)> of_vectors(std::integer_sequence<int, LESS...>) {
    return {&multiply<LESS + 1, NV>...};
}

template <int NV>
multiply_t of_rows(int64_t rows) {
    constexpr auto kernels = of_vectors<NV>(std::make_integer_sequence<int, most_rows(NV)>{});
    return kernels[static_cast<size_t>(rows - 1)];
}

}  // namespace

multiply_t multiplier(int64_t rows, int64_t vectors) {
    switch (vectors) {
        case 1:
            return of_rows<1>(rows);
        case 2:
            return of_rows<2>(rows);
        case 3:
            return of_rows<3>(rows);
        default:
            return of_rows<4>(rows);
    }
}

void multiply_block(const Block& block, const Panels& panels) {
    const int64_t tiles = (block.count + block.tall - 1) / block.tall;
    const int64_t depth = block.taps * block.channels;
    const int64_t parts = (block.channels + block.depth_block - 1) / block.depth_block;  // of one tap
    const int64_t together = parts > 1 ? 1 : std::max<int64_t>(1, block.depth_block / block.channels);
    const bool alone = block.past_panel - block.first_panel == 1;
    const bool rows_ahead = block.taps == 1 && parts == 1 && depth * panels.padded() <= CACHED_WEIGHTS;
    // a block without taps is its epilogue alone
    for (int64_t tap = 0; tap == 0 || tap < block.taps; tap += together)
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t channel = block.channels * part / parts;
            const int64_t channels = block.channels * (part + 1) / parts - channel;
            const int64_t taps = std::min(together, block.taps - tap);
            const bool is_first = tap == 0 && part == 0, is_last = tap + taps == block.taps && part == parts - 1;
            const int64_t before = tap * block.channels + channel, steps = taps * channels;
            const auto weight_of = [&](int64_t panel, int64_t from) {
                return block.weight + panels.first(panel) * depth + from * panels.vectors(panel) * LANES;
            };
            Finish finish = block.finish;
            Tile tile{};
            tile.tap_step = block.tap_step;
            tile.taps = taps;
            tile.channel = block.channel + channel;
            tile.channels = channels;
            tile.bias = is_first ? block.bias : nullptr;
            tile.add = !is_first;
            tile.fetches = is_first && !(alone && rows_ahead);
            tile.finish = is_last ? &finish : nullptr;
            for (int64_t panel = block.first_panel; panel < block.past_panel; ++panel) {
                const int64_t vectors = panels.vectors(panel);
                tile.weight = weight_of(panel, before);
                tile.column = block.column + panels.first(panel);
                tile.last = panels.last(panel);
                // fetched meanwhile: what the next panel reads, or after the last one the next pass
                tile.ahead = panel + 1 < block.past_panel ? weight_of(panel + 1, before)
                                                          : weight_of(block.first_panel, is_last ? 0 : before + steps);
                tile.leap = (vectors * LANES + tiles - 1) / tiles;
                for (int64_t t = 0; t < tiles; ++t, tile.ahead += steps * tile.leap) {
                    const int64_t row = block.count * t / tiles, height = block.count * (t + 1) / tiles - row;
                    tile.rows = block.rows + tap * block.tap_step + row;
                    tile.out = block.out + row;
                    if (rows_ahead && panel == block.first_panel) {
                        tile.ahead = tile.rows[height - 1] + tile.channel + channels;
                        tile.leap = height;
                    }
                    finish.addend = block.finish.addend == nullptr ? nullptr : block.finish.addend + row;
                    multiplier(height, vectors)(tile);
                }
            }
        }
}

void product(const float* a, int64_t a_stride, const float* b, float* c, int64_t c_stride, int64_t rows, int64_t depth,
             int64_t columns, int64_t vectors, int64_t depth_block, bool add) {
    const Panels panels(columns, vectors);
    const int64_t tall = most_rows(static_cast<int>(vectors)), tiles = (rows + tall - 1) / tall;
    for (int64_t k = 0; k < depth; k += depth_block) {
        const int64_t steps = std::min(depth_block, depth - k);
        for (int64_t panel = 0; panel < panels.count; ++panel) {
            const int64_t width = panels.vectors(panel) * LANES;
            Tile tile{};
            tile.taps = 1;
            tile.channel = k;
            tile.channels = steps;
            tile.column = panels.first(panel);
            tile.weight = b + tile.column * depth + k * width;
            tile.last = panels.last(panel);
            tile.add = add || k > 0;
            tile.leap = (width + tiles - 1) / tiles;
            tile.ahead = tile.weight + depth * width;  // the next panel's, fetched meanwhile
            for (int64_t t = 0; t < tiles; ++t, tile.ahead += steps * tile.leap) {
                const int64_t row = rows * t / tiles, height = rows * (t + 1) / tiles - row;
                const float* in[most_rows(1)];
                float* out[most_rows(1)];
                for (int64_t i = 0; i < height; ++i) {
                    in[i] = a + (row + i) * a_stride;
                    out[i] = c + (row + i) * c_stride;
                }
                tile.rows = in;
                tile.out = out;
                multiplier(height, panels.vectors(panel))(tile);
            }
        }
    }
}

// Floats of one vector, by which weights are packed, and how many registers there are.
NHWC_EXPORT(engine_vectors)(int64_t* lanes, int64_t* registers) {
    *lanes = LANES;
    *registers = REGISTERS;
}

}  // namespace engine
}  // namespace nhwc
