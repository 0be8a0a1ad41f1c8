// Maximum and average over the cells of an even grid: adaptive and global pooling.
#include <limits>

#include "lanes.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int64_t FLOATS_PER_TASK = 1 << 13;
constexpr int64_t FEW_PIXELS = 48;

struct AdaptivePool {
    Rows x, y;
    int64_t is_maximum;
};

struct Range {
    int64_t begin, end;
    Range(int64_t output, int64_t outputs, int64_t inputs)
        : begin(output * inputs / outputs), end(((output + 1) * inputs + outputs - 1) / outputs) {}
    int64_t size() const { return end - begin; }
};

// Runs of pixels a step apart, from one to the next by two strides: a cell of the input.
struct Cell {
    const float* first;
    int64_t depths, heights, pixels, depth_step, height_step, step;
    int64_t count() const { return depths * heights * pixels; }
};

// Rows that follow each other without a gap become one run.
Cell cell_of(const Rows& x, float* base, int64_t n, const Range& d, const Range& h, const Range& w) {
    Cell cell{row_of(x, base, n, d.begin, h.begin) + w.begin * x.sw, d.size(), h.size(), w.size(), x.sd, x.sh, x.sw};
    if (w.size() == x.w && x.sh == x.w * x.sw) {
        cell.pixels *= cell.heights;
        cell.heights = 1;
        if (h.size() == x.h && x.sd == x.h * x.sh) {
            cell.pixels *= cell.depths;
            cell.depths = 1;
        }
    }
    return cell;
}

// body(first pixel, count) over stretches of at most `most` pixels.
template <class Body>
inline void for_stretches(const Cell& cell, int64_t most, const Body& body) {
    for (int64_t d = 0; d < cell.depths; ++d)
        for (int64_t h = 0; h < cell.heights; ++h)
            for (int64_t i = 0; i < cell.pixels; i += most)
                body(cell.first + d * cell.depth_step + h * cell.height_step + i * cell.step,
                     std::min(most, cell.pixels - i));
}

// Four sums of four pixels each, whose own sum goes on with the error of every addition kept.
template <class L>
void average(const Cell& cell, const L& lanes, int64_t channel, float* to) {
    constexpr int V = L::vectors;
    vf total[V]{}, lost[V]{};
    for_stretches(cell, 16, [&](const float* pixel, int64_t count) {
        vf sum[4][V]{};
        const float* from = pixel + channel;
        int64_t i = 0;
        for (; i + 4 <= count; i += 4, from += 4 * cell.step)
#pragma GCC unroll 4
            for (int part = 0; part < 4; ++part)
                for (int k = 0; k < V; ++k) sum[part][k] += lanes.get(from + part * cell.step, k);
        for (; i < count; ++i, from += cell.step)
            for (int k = 0; k < V; ++k) sum[0][k] += lanes.get(from, k);
        for (int k = 0; k < V; ++k) {
            const vf more = (sum[0][k] + sum[1][k]) + (sum[2][k] + sum[3][k]), whole = total[k] + more;
            const vf taken = whole - total[k];
            lost[k] += (total[k] - (whole - taken)) + (more - taken);
            total[k] = whole;
        }
    });
    const float count = static_cast<float>(cell.count());
    for (int k = 0; k < V; ++k) {
        const vf exact = total[k] + lost[k];
        // what is lost beside an infinity is none
        lanes.put(to + channel, k, (exact == exact ? exact : total[k]) / count);
    }
}

// Few pixels: two plain sums of twice as many channels, so that more of a pixel is read at once.
template <class L>
void average_few(const Cell& cell, const L& lanes, int64_t channel, float* to) {
    constexpr int V = L::vectors;
    vf sum[2][V]{};
    for_stretches(cell, cell.pixels, [&](const float* pixel, int64_t count) {
        const float* from = pixel + channel;
        int64_t i = 0;
        for (; i + 2 <= count; i += 2, from += 2 * cell.step)
#pragma GCC unroll 2
            for (int part = 0; part < 2; ++part)
                for (int k = 0; k < V; ++k) sum[part][k] += lanes.get(from + part * cell.step, k);
        if (i < count)
            for (int k = 0; k < V; ++k) sum[0][k] += lanes.get(from, k);
    });
    const float count = static_cast<float>(cell.count());
    for (int k = 0; k < V; ++k) lanes.put(to + channel, k, (sum[0][k] + sum[1][k]) / count);
}

template <class L>
void maximum(const Cell& cell, const L& lanes, int64_t channel, float* to) {
    constexpr int V = L::vectors;
    vf best[2][V];
    for (auto& half : best)
        for (int k = 0; k < V; ++k) half[k] = splat(-std::numeric_limits<float>::infinity());
    for_stretches(cell, cell.pixels, [&](const float* pixel, int64_t count) {
        const float* from = pixel + channel;
        int64_t i = 0;
        for (; i + 2 <= count; i += 2, from += 2 * cell.step)
#pragma GCC unroll 2
            for (int part = 0; part < 2; ++part)
                for (int k = 0; k < V; ++k)
                    best[part][k] = greater_of(best[part][k], lanes.get(from + part * cell.step, k));
        if (i < count)
            for (int k = 0; k < V; ++k) best[0][k] = greater_of(best[0][k], lanes.get(from, k));
    });
    for (int k = 0; k < V; ++k) lanes.put(to + channel, k, greater_of(best[0][k], best[1][k]));
}

}  // namespace

NHWC_STEP(pool_adaptive, AdaptivePool) {
    const AdaptivePool& p = parameters;
    const Rows &from = p.x, &to = p.y;
    float *x = at(context, from), *y = at(context, to);
    const int64_t cells = to.n * to.d * to.h * to.w;
    if (cells == 0 || to.c == 0) return;
    const int64_t work = std::max<int64_t>(1, from.n * from.d * from.h * from.w / cells);
    const Parts channels(to.c, cells >= 4 * context.threads ? to.c : FLOATS_PER_TASK / work, WIDE * LANES);
    const Parts groups(cells, FLOATS_PER_TASK / (work * std::min(channels.size, to.c)), 1);
    tasks(context, groups.count * channels.count, [&](int64_t task, int64_t) {
        const int64_t part = task % channels.count, group = task / channels.count;
        for (int64_t cell = groups.begin(group); cell < groups.end(group, cells); ++cell) {
            const int64_t w = cell % to.w, h = cell / to.w % to.h, d = cell / to.w / to.h % to.d;
            const int64_t n = cell / to.w / to.h / to.d;
            const Cell source =
                cell_of(from, x, n, Range(d, to.d, from.d), Range(h, to.h, from.h), Range(w, to.w, from.w));
            float* target = row_of(to, y, n, d, h) + w * to.sw;
            const int64_t begin = channels.begin(part), end = channels.end(part, to.c);
            if (p.is_maximum)
                for_channels<WIDE>(begin, end, [&](const auto& l, int64_t c) { maximum(source, l, c, target); });
            else if (source.count() <= FEW_PIXELS)
                for_channels<2 * WIDE>(begin, end,
                                       [&](const auto& l, int64_t c) { average_few(source, l, c, target); });
            else
                for_channels<WIDE>(begin, end, [&](const auto& l, int64_t c) { average(source, l, c, target); });
        }
    });
}

}  // namespace engine
}  // namespace nhwc
