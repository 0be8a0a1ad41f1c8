// 3x3 convolutions of images with stride 1, forward and for the input's gradient, by the engine's Winograd kernel, on
// weights that change from call to call: they are transformed each time.
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
using winograd::F4;

typedef double vw __attribute__((vector_size(8 * LANES)));

// Transforms of weights, G of winograd.py: the powers of each point over the product of its distances to the others.
// F(2)'s first row has the other sign, as its input's transform has, and float holds its halves; F(4) takes double.
template <class F>
struct Matrix;
template <>
struct Matrix<F2> {
    using vector = vf;
    static constexpr float rows[4][3] = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}};
};
template <>
struct Matrix<F4> {
    using vector = vw;
    static constexpr double A = F4::A, B = F4::B, A2 = A * A, B2 = B * B;
    static constexpr double ZERO = 1 / (A2 * B2), AT_A = 1 / (2 * A2 * (A2 - B2)), AT_B = 1 / (2 * B2 * (B2 - A2));
    static constexpr double rows[6][3] = {{ZERO, 0, 0},
                                          {AT_A, AT_A * A, AT_A * A2},
                                          {AT_A, -AT_A * A, AT_A * A2},
                                          {AT_B, AT_B * B, AT_B * B2},
                                          {AT_B, -AT_B * B, AT_B * B2},
                                          {0, 0, 1}};
};

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

template <class F, class V>
inline V row_of(int i, const V (&w)[3]) {
    const auto& g = Matrix<F>::rows[i];
    return w[0] * g[0] + w[1] * g[1] + w[2] * g[2];
}

// G w G^T as the product reads it, [point][panel][depth][column], columns padded with zeros to whole vectors.
template <class F>
void transform(const Weight& weight, const Panels& panels, float* to) {
    constexpr int N = F::N;
    using V = typename Matrix<F>::vector;
    const int64_t point_step = panels.padded() * weight.depth;
    const int64_t vectors = panels.padded() / LANES, parts = (weight.depth + 15) / 16;
    parallel_for(vectors * parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t column = task / parts * LANES, from = task % parts * 16;
            int64_t panel = 0;
            while (panel + 1 < panels.count && panels.first(panel + 1) <= column) ++panel;
            const int64_t width = panels.vectors(panel) * LANES, within = column - panels.first(panel);
            for (int64_t d = from; d < std::min(from + 16, weight.depth); ++d) {
                V half[N][3];
#pragma GCC unroll 3
                for (int j = 0; j < 3; ++j) {
                    V taps[3];
#pragma GCC unroll 3
                    for (int i = 0; i < 3; ++i)
                        taps[i] = __builtin_convertvector(weight.vector(weight.tap(i, j), column, d), V);
#pragma GCC unroll 6
                    for (int i = 0; i < N; ++i) half[i][j] = row_of<F>(i, taps);
                }
                float* place = to + panels.first(panel) * weight.depth + d * width + within;
#pragma GCC unroll 6
                for (int i = 0; i < N; ++i)
#pragma GCC unroll 6
                    for (int j = 0; j < N; ++j, place += point_step)
                        store(place, __builtin_convertvector(row_of<F>(j, half[i]), vf));
            }
        }
    });
}

int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// What steps/winograd.py would try first: blocks of tiles while a core's cache has room for the weights too, else the
// phases.
struct Schedule {
    static constexpr int64_t APART = 16, BLOCK_BYTES = 448 * 1024, BLOCKS_UP_TO = 3 * 1024 * 1024;
    int64_t points, tiles, vectors, block;
    bool phases;

    Schedule(int64_t tile, const Rows& x, const Rows& y, int64_t threads) : points((tile + 2) * (tile + 2)) {
        const Panels panels(y.c, REGISTERS == 32 ? 4 : 3);
        vectors = panels.vectors(0);
        tiles = y.n * ((y.h + tile - 1) / tile) * ((y.w + tile - 1) / tile);
        phases = x.c * panels.padded() * points * 4 > BLOCKS_UP_TO;
        const int64_t wide = phases ? y.c : std::min(vectors * LANES, y.c);
        each = points * (up(x.c, APART) + up(wide, APART));
        const int64_t most = std::max<int64_t>(1, BLOCK_BYTES / (each * 4)),
                      tall = most_rows(static_cast<int>(vectors));
        const int64_t even = (tiles - 1) / up((tiles + most - 1) / most, threads) + 1;
        block = phases ? tiles : even > tall ? up(even, tall) : even;
        chunk = phases ? panels.count : 1;
    }
    int64_t chunk, each;
    // floats of working memory
    int64_t scratch(int64_t threads) const {
        return up(each * block + 2 * APART * points, APART) * (phases ? 1 : threads);
    }
};

constexpr int64_t ALIGNED = 16;  // floats

struct Sizes {
    int64_t weight, bias, scratch;
    int64_t floats() const { return weight + bias + scratch + ALIGNED; }
};

Sizes sizes_of(const Schedule& schedule, const Rows& x, const Rows& y, int64_t threads) {
    const Panels panels(y.c, schedule.vectors);
    return {up(schedule.points * panels.padded() * x.c, ALIGNED), up(panels.padded(), ALIGNED),
            schedule.scratch(threads)};
}

Rows image(const void* at, int64_t n, int64_t h, int64_t w, int64_t c) {
    return {{0, reinterpret_cast<int64_t>(at)}, n, 1, h, w, c, h * w * c, 0, w * c, c, 1};
}

}  // namespace

// Floats of working memory that conv2d_winograd asks for. tile: 2 or 4.
NHWC_EXPORT(conv2d_winograd_floats)(int64_t tile, int64_t n, int64_t h, int64_t w, int64_t channels, int64_t columns,
                                    int64_t padding, int64_t threads, int64_t* floats) {
    const Rows x = image(nullptr, n, h, w, channels);
    const Rows y = image(nullptr, n, h + 2 * padding - 2, w + 2 * padding - 2, columns);
    *floats = sizes_of(Schedule(tile, x, y, threads), x, y, threads).floats();
}

// y (n, h + 2 padding - 2, w + 2 padding - 2, columns) = x (n, h, w, channels), both channels last and dense, times
// weight (columns, channels, 3, 3) in any strides, turned or not, plus bias or null.
NHWC_EXPORT(conv2d_winograd)(int64_t tile, const float* x, const float* weight, const float* bias, float* y,
                             float* memory, int64_t n, int64_t h, int64_t w, int64_t channels, int64_t columns,
                             int64_t padding, int64_t by_column, int64_t by_channel, int64_t by_row, int64_t by_place,
                             int64_t turned, int64_t threads) {
    Conv conv{};
    conv.x = image(x, n, h, w, channels);
    conv.y = image(y, n, h + 2 * padding - 2, w + 2 * padding - 2, columns);
    const Schedule schedule(tile, conv.x, conv.y, threads);
    const Sizes sizes = sizes_of(schedule, conv.x, conv.y, threads);
    const Panels panels(columns, schedule.vectors);
    float* packed = memory + (-(reinterpret_cast<intptr_t>(memory) / 4) & (ALIGNED - 1));
    float* offsets = packed + sizes.weight;
    std::fill(offsets, offsets + sizes.bias, 0.0f);
    if (bias != nullptr) std::copy(bias, bias + columns, offsets);
    const Weight read{weight, columns, channels, by_column, by_channel, by_row, by_place, turned != 0};
    tile == 4 ? transform<F4>(read, panels, packed) : transform<F2>(read, panels, packed);

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
        tile, schedule.phases, schedule.block, schedule.vectors, std::min<int64_t>(256, channels), schedule.chunk};
    std::copy(choice, choice + 6, conv.choice);
    char* table[] = {nullptr};
    const Context context{table, threads, reinterpret_cast<char*>(offsets + sizes.bias)};
    nhwc_step_conv_winograd(&conv, &context);
}

}  // namespace engine
}  // namespace nhwc
