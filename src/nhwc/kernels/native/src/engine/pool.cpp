// Maximum and average over windows of channels-last rows, in two and three dimensions.
//
// A block of channels walks along an output row: every column of inputs is first reduced over the window's rows, and
// the columns that neighbouring windows share stay in registers. Other windows take the columns from a line in the
// cache.
#include <limits>

#include "lanes.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int64_t FLOATS_PER_TASK = 1 << 14;
constexpr int64_t MOST_ROWS = 64;  // of a window: depth times height

struct Pool {
    Rows x, y;
    int64_t is_maximum, count_include_pad, divisor;  // divisor 0: the number of what is averaged
    int64_t kernel[3], stride[3], dilation[3], padding[3];
};

// Where a window lies along one dimension: its first input, and which of its elements are inside, [low, high).
struct Window {
    int64_t first, low, high, counted;

    Window(const Pool& p, int dimension, int64_t output, int64_t inputs) {
        const int64_t kernel = p.kernel[dimension], dilation = p.dilation[dimension], padding = p.padding[dimension];
        first = output * p.stride[dimension] - padding;
        low = first < 0 ? (-first + dilation - 1) / dilation : 0;
        high = first < inputs ? std::min(kernel, (inputs - 1 - first) / dilation + 1) : 0;
        low = std::min(low, kernel);
        high = std::max(low, high);
        counted = p.count_include_pad ? std::min(first + kernel, inputs + padding) - first : high - low;
    }
};

template <bool MAXIMUM>
inline vf neutral() {
    return splat(MAXIMUM ? -std::numeric_limits<float>::infinity() : 0.0f);
}
template <bool MAXIMUM>
inline vf both(vf a, vf b) {
    return MAXIMUM ? greater_of(a, b) : a + b;
}

// The rows of inputs below each other in a window's columns, and what the sums are multiplied with.
struct Column {
    const float* row[MOST_ROWS];
    int64_t rows;
    int64_t counted;  // of depth and height together
};

// ROWS of them; 0: as many as there are.
template <bool MAXIMUM, int ROWS, class L>
inline void reduce(const Column& column, const L& lanes, int64_t offset, vf* to) {
    const int64_t rows = ROWS > 0 ? ROWS : column.rows;
    vf sum[L::vectors];
    for (int k = 0; k < L::vectors; ++k) sum[k] = neutral<MAXIMUM>();
    if (rows > 0)
        for (int k = 0; k < L::vectors; ++k) sum[k] = lanes.get(column.row[0] + offset, k);
#pragma GCC unroll 2
    for (int64_t r = 1; r < rows; ++r)
        for (int k = 0; k < L::vectors; ++k) sum[k] = both<MAXIMUM>(sum[k], lanes.get(column.row[r] + offset, k));
    for (int k = 0; k < L::vectors; ++k) to[k] = sum[k];
}

// What a window's sum is multiplied with.
inline float share(const Pool& p, const Column& column, const Window& window) {
    if (p.divisor != 0) return 1.0f / static_cast<float>(p.divisor);
    const int64_t counted = column.counted * window.counted;
    return counted == 0 ? 0.0f : 1.0f / static_cast<float>(counted);
}

template <bool MAXIMUM, class L>
inline void put_window(const Pool& p, const Column& column, const Window& window, const L& lanes, const vf* sum,
                       float* to) {
    const vf scale = MAXIMUM ? vf{} : splat(share(p, column, window));
    for (int k = 0; k < L::vectors; ++k) lanes.put(to, k, MAXIMUM ? sum[k] : sum[k] * scale);
}

// Windows of WIDTH columns, STRIDE apart.
template <bool MAXIMUM, int WIDTH, int STRIDE, int ROWS, class L>
void walk(const Pool& p, const Column& column, const L& lanes, int64_t channel, float* to) {
    constexpr int V = L::vectors, KEPT = WIDTH > STRIDE ? WIDTH - STRIDE : 0;
    vf kept[WIDTH][V];
    const auto fetch = [&](int64_t j, vf* into) {
        if (j >= 0 && j < p.x.w)
            reduce<MAXIMUM, ROWS>(column, lanes, j * p.x.sw + channel, into);
        else
            for (int k = 0; k < V; ++k) into[k] = neutral<MAXIMUM>();
    };
    for (int i = 0; i < KEPT; ++i) fetch(i - p.padding[2], kept[i + STRIDE]);
    for (int64_t o = 0; o < p.y.w; ++o) {
        const Window window(p, 2, o, p.x.w);
#pragma GCC unroll 3
        for (int i = 0; i < KEPT; ++i)
            for (int k = 0; k < V; ++k) kept[i][k] = kept[i + STRIDE][k];
#pragma GCC unroll 3
        for (int i = KEPT; i < WIDTH; ++i) fetch(window.first + i, kept[i]);
        vf sum[V];
        for (int k = 0; k < V; ++k) sum[k] = kept[0][k];
#pragma GCC unroll 3
        for (int i = 1; i < WIDTH; ++i)
            for (int k = 0; k < V; ++k) sum[k] = both<MAXIMUM>(sum[k], kept[i][k]);
        put_window<MAXIMUM>(p, column, window, lanes, sum, to + o * p.y.sw + channel);
    }
}

// Any windows: all columns reduced to a line of WIDE vectors each, then the line to the outputs.
template <bool MAXIMUM, class L>
void by_line(const Pool& p, const Column& column, const L& lanes, int64_t channel, float* line, float* to) {
    constexpr int V = L::vectors;
    for (int64_t j = 0; j < p.x.w; ++j) {
        vf sum[V];
        reduce<MAXIMUM, 0>(column, lanes, j * p.x.sw + channel, sum);
        for (int k = 0; k < V; ++k) store(line + (j * V + k) * LANES, sum[k]);
    }
    for (int64_t o = 0; o < p.y.w; ++o) {
        const Window window(p, 2, o, p.x.w);
        vf sum[V];
        for (int k = 0; k < V; ++k) sum[k] = neutral<MAXIMUM>();
        for (int64_t i = window.low; i < window.high; ++i) {
            const float* from = line + (window.first + i * p.dilation[2]) * V * LANES;
            for (int k = 0; k < V; ++k) sum[k] = both<MAXIMUM>(sum[k], load(from + k * LANES));
        }
        put_window<MAXIMUM>(p, column, window, lanes, sum, to + o * p.y.sw + channel);
    }
}

template <bool MAXIMUM, int WIDTH, int STRIDE>
void walk_row(const Pool& p, const Column& column, int64_t begin, int64_t end, float* to) {
    for_channels<WIDE>(begin, end, [&](const auto& lanes, int64_t c) {
        switch (column.rows) {
            case 2:
                return walk<MAXIMUM, WIDTH, STRIDE, 2>(p, column, lanes, c, to);
            case 3:
                return walk<MAXIMUM, WIDTH, STRIDE, 3>(p, column, lanes, c, to);
            default:
                return walk<MAXIMUM, WIDTH, STRIDE, 0>(p, column, lanes, c, to);
        }
    });
}

template <bool MAXIMUM>
void pool_row(const Pool& p, const Column& column, int64_t begin, int64_t end, float* line, float* to) {
    const int64_t width = p.kernel[2], stride = p.stride[2];
    if (p.dilation[2] == 1 && width == 3 && stride == 1) return walk_row<MAXIMUM, 3, 1>(p, column, begin, end, to);
    if (p.dilation[2] == 1 && width == 3 && stride == 2) return walk_row<MAXIMUM, 3, 2>(p, column, begin, end, to);
    if (p.dilation[2] == 1 && width == 2 && stride == 1) return walk_row<MAXIMUM, 2, 1>(p, column, begin, end, to);
    if (p.dilation[2] == 1 && width == 2 && stride == 2) return walk_row<MAXIMUM, 2, 2>(p, column, begin, end, to);
    for_channels<WIDE>(begin, end,
                       [&](const auto& lanes, int64_t c) { by_line<MAXIMUM>(p, column, lanes, c, line, to); });
}

void fill_column(const Pool& p, float* x, int64_t n, const Window& deep, const Window& high, Column& column) {
    column.rows = 0;
    column.counted = deep.counted * high.counted;
    for (int64_t d = deep.low; d < deep.high; ++d)
        for (int64_t h = high.low; h < high.high; ++h)
            column.row[column.rows++] =
                row_of(p.x, x, n, deep.first + d * p.dilation[0], high.first + h * p.dilation[1]);
}

}  // namespace

// A window has at most MOST_ROWS rows; scratch: per slot x.w times WIDE vectors.
NHWC_STEP(pool, Pool) {
    const Pool& p = parameters;
    float *x = at(context, p.x), *y = at(context, p.y);
    const int64_t rows = p.y.n * p.y.d * p.y.h;
    if (rows == 0 || p.y.c == 0) return;
    const int64_t work = p.x.w * p.kernel[0] * p.kernel[1];
    const Parts channels(p.y.c, rows >= 4 * context.threads ? p.y.c : FLOATS_PER_TASK / work, WIDE * LANES);
    const Parts groups(rows, FLOATS_PER_TASK / (work * std::min(channels.size, p.y.c)), 1);
    tasks(context, groups.count * channels.count, [&](int64_t task, int64_t slot) {
        float* line = reinterpret_cast<float*>(context.scratch) + slot * p.x.w * WIDE * LANES;
        const int64_t part = task % channels.count, group = task / channels.count;
        const int64_t begin = channels.begin(part), end = channels.end(part, p.y.c);
        for (int64_t row = groups.begin(group); row < groups.end(group, rows); ++row) {
            const int64_t h = row % p.y.h, d = row / p.y.h % p.y.d, n = row / p.y.h / p.y.d;
            Column column;
            fill_column(p, x, n, Window(p, 0, d, p.x.d), Window(p, 1, h, p.x.h), column);
            float* to = row_of(p.y, y, n, d, h);
            p.is_maximum ? pool_row<true>(p, column, begin, end, line, to)
                         : pool_row<false>(p, column, begin, end, line, to);
        }
    });
}

}  // namespace engine
}  // namespace nhwc
