// Winograd convolution, 3x3 with stride 1: tiles of pixels to points, one matrix product per point, and back.
//
// Two schedules. Blocks: a task takes some tiles through all three, in scratch of its own that fits the second-level
// cache; for large pictures. Phases: each of the three is a set of tasks over the whole batch, so that every product's
// weights are read once; for small pictures with many channels.
#include <algorithm>

#include "late.h"
#include "product.h"
#include "tasks.h"
#include "winograd.h"

namespace nhwc {
namespace engine {
namespace {

using winograd::F2;
using winograd::F4;
using winograd::Inside;

int64_t up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

// What every task needs. Points lie [point][tile][channel]; between two points are some floats more, so that those of
// one tile do not all fall on one line of the cache.
template <class F>
struct Plan {
    static constexpr int M = F::M, N = F::N, POINTS = N * N;
    static constexpr int64_t APART = 16, ROWS = 192;  // ROWS: of one product in phases
    const Conv& conv;
    const Context& context;
    Panels panels;  // of one group's columns
    int64_t block, depth_block, chunk;
    int64_t depth, columns;  // of one group
    int64_t tiles_high, tiles_wide, tiles;
    int64_t v_tile, v_point, m_tile, m_point;  // strides in floats

    Plan(const Conv& conv, const Context& context)
        : conv(conv),
          context(context),
          panels(conv.y.c / conv.groups, conv.choice[3]),
          block(conv.choice[2]),
          depth_block(conv.choice[4]),
          chunk(conv.choice[5]),
          depth(conv.x.c / conv.groups),
          columns(conv.y.c / conv.groups),
          tiles_high((conv.y.h + M - 1) / M),
          tiles_wide((conv.y.w + M - 1) / M),
          tiles(conv.y.n * tiles_high * tiles_wide),
          v_tile(up(conv.x.c, APART)),
          v_point(block * v_tile + APART),
          m_tile(conv.groups > 1 ? up(conv.y.c, APART) : up(std::min(chunk * conv.choice[3] * LANES, conv.y.c), APART)),
          m_point(block * m_tile + APART) {}

    // One tile of the batch, all input channels, to `v`.
    void forward(int64_t tile, float* v) const {
        const Rows& x = conv.x;
        const int64_t n = tile / tiles_wide / tiles_high;
        const int64_t row = tile / tiles_wide % tiles_high * M - conv.padding[1];
        const int64_t column = tile % tiles_wide * M - conv.padding[2];
        const auto within = [](int64_t place) { return static_cast<int>(std::clamp<int64_t>(place, 0, N)); };
        const Inside inside{within(-row), within(x.h - row), within(-column), within(x.w - column)};
        const float* from = at(context, x) + n * x.sn + row * x.sh + column * x.sw;
        if (inside.row_from == 0 && inside.row_to == N && inside.column_from == 0 && inside.column_to == N)
            forward_channels<false>(from, inside, v);
        else
            forward_channels<true>(from, inside, v);
    }

    template <bool EDGE>
    void forward_channels(const float* from, const Inside& inside, float* v) const {
        const Rows& x = conv.x;
        int64_t c = 0;
        for (; c + LANES <= x.c; c += LANES)
            winograd::forward<F, EDGE, false>(from + c, x.sh, x.sw, inside, v + c, v_point, 0);
        if (c < x.c) winograd::forward<F, EDGE, true>(from + c, x.sh, x.sw, inside, v + c, v_point, x.c - c);
    }

    const float* weight(int64_t point, int64_t group, int64_t panel) const {
        return at(context, conv.weight) +
               ((point * conv.groups + group) * panels.padded() + panels.first(panel)) * depth;
    }

    // Rows [0, count) of one point times the weights of one panel of one group. first: the first column that m holds.
    // ahead: the weights that come next.
    void multiply(int64_t point, int64_t group, int64_t panel, const float* v, float* m, int64_t count, int64_t first,
                  const float* ahead) const {
        const int64_t width = panels.vectors(panel) * LANES, tall = most_rows(static_cast<int>(panels.vectors(panel)));
        const int64_t blocks = (count + tall - 1) / tall, parts = (depth + depth_block - 1) / depth_block;
        v += point * v_point + group * depth;
        m += point * m_point + group * columns + panels.first(panel) - first;
        Tile tile{};
        tile.taps = 1;
        tile.last = panels.last(panel);
        tile.leap = (width + blocks - 1) / blocks;
        for (int64_t part = 0; part < parts; ++part) {
            tile.channel = depth * part / parts;
            tile.channels = depth * (part + 1) / parts - tile.channel;
            tile.weight = weight(point, group, panel) + tile.channel * width;
            tile.add = part > 0;
            tile.ahead = part + 1 < parts ? tile.weight + tile.channels * width : ahead;
            for (int64_t block = 0; block < blocks; ++block, tile.ahead += tile.channels * tile.leap) {
                const int64_t row = count * block / blocks, rows = count * (block + 1) / blocks - row;
                const float* in[most_rows(1)];
                float* out[most_rows(1)];
                for (int64_t i = 0; i < rows; ++i) {
                    in[i] = v + (row + i) * v_tile;
                    out[i] = m + (row + i) * m_tile;
                }
                tile.rows = in;
                tile.out = out;
                multiplier(rows, panels.vectors(panel))(tile);
            }
        }
    }

    // Output channels [from, to) of one tile; `m` holds them from its beginning.
    void inverse(int64_t tile, const float* m, int64_t from, int64_t to) const {
        const Rows &y = conv.y, &more = conv.epilogue.addend;
        const int64_t n = tile / tiles_wide / tiles_high;
        const int64_t row = tile / tiles_wide % tiles_high * M, column = tile % tiles_wide * M;
        const int high = static_cast<int>(std::min<int64_t>(M, y.h - row));
        const int wide = static_cast<int>(std::min<int64_t>(M, y.w - column));
        const bool in_registers = is_in_registers(conv.epilogue), last = conv.epilogue.addend_last != 0;
        float* const out = at(context, y) + n * y.sn + row * y.sh + column * y.sw;
        const float* added = nullptr;
        if (more.at.base >= 0) added = at(context, more) + n * more.sn + row * more.sh + column * more.sw;
        const float* bias = at(context, conv.bias);
        const Bounds bounds = bounds_of(conv.epilogue);
        for (int64_t c = from; c < to; c += LANES) {
            const int64_t part = to - c;
            const bool whole = part >= LANES;
            vf sums[M][M];
            winograd::inverse<F>(m + c - from, m_point, sums);
            const vf offset = load(bias + c);
#pragma GCC unroll 4
            for (int i = 0; i < M; ++i) {
                if (i >= high) continue;
#pragma GCC unroll 4
                for (int j = 0; j < M; ++j) {
                    if (j >= wide) continue;
                    vf sum = sums[i][j] + offset;
                    if (added != nullptr && (in_registers || !last)) {
                        const float* place = added + i * more.sh + j * more.sw + c;
                        const vf value = whole ? load(place) : load_part(place, part);
                        sum = last ? bounded(sum, bounds) + value : bounded(sum + value, bounds);
                    } else {
                        sum = bounded(sum, bounds);
                    }
                    float* place = out + i * y.sh + j * y.sw + c;
                    if (whole)
                        store(place, sum);
                    else
                        store_part(place, sum, part);
                }
            }
        }
        if (in_registers) return;
        for (int i = 0; i < high; ++i)
            for (int j = 0; j < wide; ++j) {
                float* pixel = out + i * y.sh + j * y.sw;
                const float* late = added != nullptr && last ? added + i * more.sh + j * more.sw + from : nullptr;
                activate_late(conv.epilogue, context, pixel + from, late, to - from, from);
            }
    }

    // M M pixels of a tile, `shift` rows and columns on.
    template <int WRITE>
    void fetch_pixels(const Rows& rows, int64_t tile, int64_t shift) const {
        const int64_t n = tile / tiles_wide / tiles_high;
        const int64_t row = tile / tiles_wide % tiles_high * M + shift, column = tile % tiles_wide * M + shift;
        const int64_t from = std::max<int64_t>(0, column), to = std::min(rows.w, column + M);
        for (int64_t i = std::max<int64_t>(0, row); i < std::min(rows.h, row + M); ++i) {
            const float* line = at(context, rows) + n * rows.sn + i * rows.sh;
            for (int64_t j = from; j < to; ++j)
                for (int64_t c = 0; c < rows.c; c += 16) __builtin_prefetch(line + j * rows.sw + c, WRITE, 2);
        }
    }

    // Share i of `shares` of the pixels that this block of tiles stores, and of those that the next one reads first.
    void fetch(int64_t first, int64_t count, int64_t i, int64_t shares) const {
        for (int64_t tile = first + count * i / shares; tile < first + count * (i + 1) / shares; ++tile) {
            if (tile + count < tiles) fetch_pixels<0>(conv.x, tile + count, F::N - M - conv.padding[1]);
            fetch_pixels<1>(conv.y, tile, 0);
        }
    }

    void in_blocks() const {
        const int64_t floats = up(POINTS * (v_point + m_point), 16);
        tasks(context, (tiles + block - 1) / block, [&](int64_t task, int64_t slot) {
            float* v = reinterpret_cast<float*>(context.scratch) + slot * floats;
            float* m = v + POINTS * v_point;
            const int64_t first = task * block, count = std::min(block, tiles - first);
            for (int64_t i = 0; i < count; ++i) forward(first + i, v + i * v_tile);
            for (int64_t begin = 0; begin < panels.count; begin += chunk) {
                const int64_t end = std::min(begin + chunk, panels.count), from = panels.first(begin);
                const int64_t each = conv.groups * (end - begin);
                const auto next = [&](int64_t i) {
                    i = std::min(i + 1, POINTS * each - 1);
                    return weight(i / each, i % each / (end - begin), begin + i % (end - begin));
                };
                for (int64_t i = 0; i < POINTS * each; ++i) {
                    // memory is idle meanwhile
                    if (begin == 0) fetch(first, count, i, POINTS * each);
                    multiply(i / each, i % each / (end - begin), begin + i % (end - begin), v, m, count, from, next(i));
                }
                const int64_t to = conv.groups > 1 ? conv.y.c : std::min(columns, panels.first(end));
                for (int64_t i = 0; i < count; ++i) inverse(first + i, m + i * m_tile, from, to);
            }
        });
    }

    void in_phases() const {
        float* v = reinterpret_cast<float*>(context.scratch);
        float* m = v + POINTS * v_point;
        tasks(context, tiles, [&](int64_t tile, int64_t) { forward(tile, v + tile * v_tile); });
        // neighbours share the rows of one point, which stay in the cache while panels of weights go by
        const int64_t products = conv.groups * panels.count, runs = (tiles + ROWS - 1) / ROWS;
        tasks(context, POINTS * runs * products, [&](int64_t task, int64_t) {
            const int64_t product = task % products, run = task / products % runs, point = task / products / runs;
            const int64_t begin = tiles * run / runs, end = tiles * (run + 1) / runs;
            const int64_t after = (task + 1) % products,
                          next = std::min(point + (after == 0 && run == runs - 1), int64_t{POINTS - 1});
            multiply(point, product / panels.count, product % panels.count, v + begin * v_tile, m + begin * m_tile,
                     end - begin, 0, weight(next, after / panels.count, after % panels.count));
        });
        tasks(context, tiles, [&](int64_t tile, int64_t) { inverse(tile, m + tile * m_tile, 0, conv.y.c); });
    }
};

// choice: 2 or 4 (the tile's size), blocks (0) or phases (1), tiles of a block, vectors of a panel, channels that a
// product takes at once, panels that are multiplied before they are transformed back (all with phases or groups).
template <class F>
void run(const Conv& conv, const Context& context) {
    const Plan<F> plan(conv, context);
    if (plan.tiles == 0) return;
    conv.choice[1] == 1 ? plan.in_phases() : plan.in_blocks();
}

}  // namespace

NHWC_STEP(conv_winograd, Conv) {
    parameters.choice[0] == 4 ? run<F4>(parameters, context) : run<F2>(parameters, context);
}

}  // namespace engine
}  // namespace nhwc
