// 3x3 convolutions of images with stride 1, forward and for the input's gradient, by the engine's Winograd kernel
// F(2x2, 3x3), on weights that change from call to call: they are transformed each time.
#include <algorithm>

#include "engine/conv.h"
#include "engine/product.h"
#include "engine/winograd.h"
#include "export.h"
#include "parallel.h"

extern "C" void nhwc_step_conv_winograd(const void* parameters, const nhwc::engine::Context* context);

namespace nhwc {
namespace engine {
namespace {

using winograd::F2;

// G of winograd.py for F(2): the powers of each point over the product of its distances to the others; the first row
// has the other sign, as the input's transform has. All of it is exact in float.
template <class V>
inline void transformed(const V (&w)[3], V (&points)[F2::N]) {
    const V half = (w[0] + w[2]) * 0.5f, middle = w[1] * 0.5f;
    points[0] = w[0];
    points[1] = half + middle;
    points[2] = half - middle;
    points[3] = w[2];
}

// A weight of (columns, depth, 3, 3) by its strides, in elements; turned by half a circle where it is read backwards.
struct Weight {
    const float* at;
    int64_t columns, depth;
    int64_t by_column, by_depth, by_row, by_place;
    bool turned;

    const float* tap(int row, int place) const {
        return at + (turned ? 2 - row : row) * by_row + (turned ? 2 - place : place) * by_place;
    }
    // One tap of up to LANES columns from `column` on, at one depth.
    vf vector(const float* tap, int64_t column, int64_t d) const {
        const float* from = tap + column * by_column + d * by_depth;
        const int64_t count = std::min<int64_t>(LANES, columns - column);
        vf value{};
        if (by_column == 1)
            value = count == LANES ? load(from) : load_part(from, count);
        else
            for (int64_t i = 0; i < count; ++i) value[i] = from[i * by_column];
        return value;
    }
};

// G w G^T as the product reads it, [point][panel][depth][column], columns padded with zeros to whole vectors.
void transform(const Weight& weight, const Panels& panels, float* to) {
    constexpr int N = F2::N;
    const int64_t point_step = panels.padded() * weight.depth;
    const int64_t vectors = panels.padded() / LANES, parts = (weight.depth + 15) / 16;
    parallel_for(vectors * parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t column = task / parts * LANES, from = task % parts * 16;
            int64_t panel = 0;
            while (panel + 1 < panels.count && panels.first(panel + 1) <= column) ++panel;
            const int64_t width = panels.vectors(panel) * LANES, within = column - panels.first(panel);
            for (int64_t d = from; d < std::min(from + 16, weight.depth); ++d) {
                vf half[3][N], by_row[N][3], points[N];
#pragma GCC unroll 3
                for (int j = 0; j < 3; ++j) {
                    const vf taps[3] = {weight.vector(weight.tap(0, j), column, d),
                                        weight.vector(weight.tap(1, j), column, d),
                                        weight.vector(weight.tap(2, j), column, d)};
                    transformed(taps, half[j]);
                }
#pragma GCC unroll 4
                for (int i = 0; i < N; ++i)
#pragma GCC unroll 3
                    for (int j = 0; j < 3; ++j) by_row[i][j] = half[j][i];
                float* place = to + panels.first(panel) * weight.depth + d * width + within;
#pragma GCC unroll 4
                for (int i = 0; i < N; ++i) {
                    transformed(by_row[i], points);
#pragma GCC unroll 4
                    for (int j = 0; j < N; ++j, place += point_step) store(place, points[j]);
                }
            }
        }
    });
}

int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// What steps/winograd.py would try first: blocks of tiles while a core's cache has room for the weights too, else the
// phases.
struct Schedule {
    static constexpr int64_t APART = 16, BLOCK_BYTES = 448 * 1024, BLOCKS_UP_TO = 3 * 1024 * 1024;
    static constexpr int64_t TILE = F2::M, POINTS = F2::N * F2::N;
    int64_t tiles, vectors, block;
    bool phases;

    Schedule(const Rows& x, const Rows& y, int64_t threads) {
        const Panels panels(y.c, REGISTERS == 32 ? 4 : 3);
        vectors = panels.vectors(0);
        tiles = y.n * ((y.h + TILE - 1) / TILE) * ((y.w + TILE - 1) / TILE);
        phases = x.c * panels.padded() * POINTS * 4 > BLOCKS_UP_TO;
        const int64_t wide = phases ? y.c : std::min(vectors * LANES, y.c);
        each = POINTS * (up(x.c, APART) + up(wide, APART));
        const int64_t most = std::max<int64_t>(1, BLOCK_BYTES / (each * 4)),
                      tall = most_rows(static_cast<int>(vectors));
        const int64_t even = (tiles - 1) / up((tiles + most - 1) / most, threads) + 1;
        block = phases ? tiles : even > tall ? up(even, tall) : even;
        chunk = phases ? panels.count : 1;
    }
    int64_t chunk, each;
    // floats of working memory
    int64_t scratch(int64_t threads) const {
        return up(each * block + 2 * APART * POINTS, APART) * (phases ? 1 : threads);
    }
};

constexpr int64_t ALIGNED = 16;  // floats

struct Sizes {
    int64_t weight, bias, scratch;
    int64_t floats() const { return weight + bias + scratch + ALIGNED; }
};

Sizes sizes_of(const Schedule& schedule, const Rows& x, const Rows& y, int64_t threads) {
    const Panels panels(y.c, schedule.vectors);
    return {up(Schedule::POINTS * panels.padded() * x.c, ALIGNED), up(panels.padded(), ALIGNED),
            schedule.scratch(threads)};
}

Rows image(const void* at, int64_t n, int64_t h, int64_t w, int64_t c) {
    return {{0, reinterpret_cast<int64_t>(at)}, n, 1, h, w, c, h * w * c, 0, w * c, c, 1};
}

}  // namespace

// Floats of working memory that conv2d_winograd asks for.
NHWC_EXPORT(conv2d_winograd_floats)(int64_t n, int64_t h, int64_t w, int64_t channels, int64_t columns, int64_t padding,
                                    int64_t threads, int64_t* floats) {
    const Rows x = image(nullptr, n, h, w, channels);
    const Rows y = image(nullptr, n, h + 2 * padding - 2, w + 2 * padding - 2, columns);
    *floats = sizes_of(Schedule(x, y, threads), x, y, threads).floats();
}

// y (n, h + 2 padding - 2, w + 2 padding - 2, columns) = x (n, h, w, channels), both channels last and dense, times
// weight (columns, channels, 3, 3) in any strides, turned or not, plus bias or null.
NHWC_EXPORT(conv2d_winograd)(const float* x, const float* weight, const float* bias, float* y, float* memory, int64_t n,
                             int64_t h, int64_t w, int64_t channels, int64_t columns, int64_t padding,
                             int64_t by_column, int64_t by_channel, int64_t by_row, int64_t by_place, int64_t turned,
                             int64_t threads) {
    Conv conv{};
    conv.x = image(x, n, h, w, channels);
    conv.y = image(y, n, h + 2 * padding - 2, w + 2 * padding - 2, columns);
    const Schedule schedule(conv.x, conv.y, threads);
    const Sizes sizes = sizes_of(schedule, conv.x, conv.y, threads);
    const Panels panels(columns, schedule.vectors);
    float* packed = memory + (-(reinterpret_cast<intptr_t>(memory) / 4) & (ALIGNED - 1));
    float* offsets = packed + sizes.weight;
    std::fill(offsets, offsets + sizes.bias, 0.0f);
    if (bias != nullptr) std::copy(bias, bias + columns, offsets);
    const Weight read{weight, columns, channels, by_column, by_channel, by_row, by_place, turned != 0};
    transform(read, panels, packed);

    conv.epilogue.addend.at.base = -1;
    conv.weight = {0, reinterpret_cast<int64_t>(packed)};
    conv.bias = {0, reinterpret_cast<int64_t>(offsets)};
    conv.groups = 1;
    std::fill(conv.kernel + 1, conv.kernel + 3, 3);
    std::fill(conv.padding + 1, conv.padding + 3, padding);
    std::fill(conv.stride, conv.stride + 3, 1);
    std::fill(conv.dilation, conv.dilation + 3, 1);
    conv.kernel[0] = 1;
    const int64_t choice[] = {
        Schedule::TILE, schedule.phases, schedule.block, schedule.vectors, std::min<int64_t>(256, channels),
        schedule.chunk};
    std::copy(choice, choice + 6, conv.choice);
    char* table[] = {nullptr};
    const Context context{table, threads, reinterpret_cast<char*>(offsets + sizes.bias)};
    nhwc_step_conv_winograd(&conv, &context);
}

}  // namespace engine
}  // namespace nhwc
