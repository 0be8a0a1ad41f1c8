// The microkernels of product.h, one per tile shape, and the plain product of matrices over them.
#include "product.h"

#include <array>
#include <utility>

#include "../export.h"

namespace nhwc {
namespace engine {
namespace {

template <int MR, int NV>
void multiply(const Tile& tile) {
    vf sums[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) sums[i][j] = vf{};

    const float* weight = tile.weight;
    const float* const* table = tile.rows;
    const int64_t channels = tile.channels;
    for (int64_t tap = 0; tap < tile.taps; ++tap, table += tile.tap_step) {
        const float* row[MR];
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) row[i] = table[i] + tile.channel;
#pragma GCC unroll 1
        for (int64_t c = 0; c < channels; ++c, weight += NV * LANES) {
            vf w[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) w[j] = load(weight + j * LANES);
#pragma GCC unroll 16
            for (int i = 0; i < MR; ++i) {
                const vf value = splat(row[i][c]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) sums[i][j] += value * w[j];
            }
        }
    }

    // each change goes over all sums, so that its question is asked once a tile
    const bool whole = tile.last == LANES;
    const auto each = [&](const auto& body) {
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) body(i, j, sums[i][j]);
    };
    const auto read = [&](const float* row, int j) {
        const float* from = row + tile.column + j * LANES;
        return j == NV - 1 && !whole ? load_part(from, tile.last) : load(from);
    };
    if (tile.add) each([&](int i, int j, vf& sum) { sum += read(tile.out[i], j); });
    if (tile.finish != nullptr) {
        const Finish& finish = *tile.finish;
        if (finish.bias != nullptr)
            each([&](int, int j, vf& sum) { sum += load(finish.bias + tile.column + j * LANES); });
        const bool adds = finish.addend != nullptr;
        if (adds && !finish.addend_last) each([&](int i, int j, vf& sum) { sum += read(finish.addend[i], j); });
        each([&](int, int, vf& sum) { sum = bounded(sum, finish.bounds); });
        if (adds && finish.addend_last) each([&](int i, int j, vf& sum) { sum += read(finish.addend[i], j); });
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
    // a block without taps is its epilogue alone
    for (int64_t tap = 0; tap == 0 || tap < block.taps; tap += together)
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t channel = block.channels * part / parts;
            const int64_t channels = block.channels * (part + 1) / parts - channel;
            const int64_t taps = std::min(together, block.taps - tap);
            const bool is_last = tap + taps == block.taps && part == parts - 1;
            for (int64_t panel = block.first_panel; panel < block.past_panel; ++panel) {
                const int64_t vectors = panels.vectors(panel), column = panels.first(panel);
                Finish finish = block.finish;
                Tile tile{};
                tile.tap_step = block.tap_step;
                tile.taps = taps;
                tile.channel = block.channel + channel;
                tile.channels = channels;
                tile.weight = block.weight + column * depth + (tap * block.channels + channel) * vectors * LANES;
                tile.column = block.column + column;
                tile.last = panels.last(panel);
                tile.add = tap > 0 || part > 0;
                tile.finish = is_last ? &finish : nullptr;
                for (int64_t t = 0; t < tiles; ++t) {
                    const int64_t row = block.count * t / tiles, height = block.count * (t + 1) / tiles - row;
                    tile.rows = block.rows + tap * block.tap_step + row;
                    tile.out = block.out + row;
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
    for (int64_t k = 0; k < depth; k += depth_block)
        for (int64_t panel = 0; panel < panels.count; ++panel) {
            const int64_t width = panels.vectors(panel) * LANES;
            const int64_t column = panels.first(panel);
            for (int64_t t = 0; t < tiles; ++t) {
                const int64_t row = rows * t / tiles, height = rows * (t + 1) / tiles - row;
                const float* in[most_rows(1)];
                float* out[most_rows(1)];
                for (int64_t i = 0; i < height; ++i) {
                    in[i] = a + (row + i) * a_stride;
                    out[i] = c + (row + i) * c_stride;
                }
                const Tile tile{in,
                                0,
                                1,
                                k,
                                std::min(depth_block, depth - k),
                                b + column * depth + k * width,
                                out,
                                column,
                                panels.last(panel),
                                add || k > 0,
                                nullptr};
                multiplier(height, panels.vectors(panel))(tile);
            }
        }
}

// Floats of one vector: weights are packed by it.
NHWC_EXPORT(engine_lanes)(int64_t* lanes) { *lanes = LANES; }

}  // namespace engine
}  // namespace nhwc
