// Nearest and linear interpolation of channels-last rows to another size.
//
// Along every dimension an output lies between two inputs, which Python tells. A block of channels walks along an
// output row; the columns of inputs, already blended over depth and height, stay in registers while outputs lie between
// them.
#include "arithmetic.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int64_t FLOATS_PER_TASK = 1 << 14;

// Per output of one dimension: the inputs before and behind it (int64), and the share of the latter (float).
struct Axis {
    Ref low, high, share;
};

struct Resample {
    Rows x, y;
    int64_t is_linear;
    Axis axis[3];  // depth, height, width
};

struct Places {
    const int64_t *low, *high;
    const float* share;
    Places(const Context& context, const Axis& axis)
        : low(reinterpret_cast<const int64_t*>(at(context, axis.low))),
          high(reinterpret_cast<const int64_t*>(at(context, axis.high))),
          share(at(context, axis.share)) {}
};

// Up to four rows of inputs with their weights, which an output row lies between.
struct Between {
    const float* row[4];
    float weight[4];
    int64_t rows = 0;

    Between(const Rows& x, float* base, int64_t n, const Places& depth, int64_t d, const Places& height, int64_t h) {
        const auto add = [&](int64_t deep, int64_t high, float share) {
            if (share == 0.0f) return;
            row[rows] = row_of(x, base, n, deep, high);
            weight[rows++] = share;
        };
        const float behind = depth.share[d], below = height.share[h];
        add(depth.low[d], height.low[h], (1.0f - behind) * (1.0f - below));
        add(depth.low[d], height.high[h], (1.0f - behind) * below);
        add(depth.high[d], height.low[h], behind * (1.0f - below));
        add(depth.high[d], height.high[h], behind * below);
    }
};

template <int ROWS, class L>
void walk(const Resample& p, const Between& between, const Places& width, const L& lanes, int64_t channel, float* to) {
    constexpr int V = L::vectors;
    vf left[V]{}, right[V]{};
    const auto fetch = [&](int64_t j, vf* into) {
        const int64_t offset = j * p.x.sw + channel;
        for (int k = 0; k < V; ++k) {
            vf sum = lanes.get(between.row[0] + offset, k) * between.weight[0];
#pragma GCC unroll 4
            for (int r = 1; r < ROWS; ++r) sum += lanes.get(between.row[r] + offset, k) * between.weight[r];
            into[k] = sum;
        }
    };
    int64_t left_at = -1, right_at = -1;
    for (int64_t o = 0; o < p.y.w; ++o) {
        const int64_t low = width.low[o], high = width.high[o];
        if (low != left_at) {
            if (low == right_at)
                for (int k = 0; k < V; ++k) left[k] = right[k];
            else
                fetch(low, left);
            left_at = low;
        }
        if (high != right_at) {
            if (high == low)
                for (int k = 0; k < V; ++k) right[k] = left[k];
            else
                fetch(high, right);
            right_at = high;
        }
        const float behind = width.share[o], before = 1.0f - behind;
        for (int k = 0; k < V; ++k) lanes.put(to + o * p.y.sw + channel, k, left[k] * before + right[k] * behind);
    }
}

void nearest_row(const Resample& p, const float* from, const Places& width, int64_t begin, int64_t end, float* to) {
    for (int64_t o = 0; o < p.y.w; ++o) {
        const float* source = from + width.low[o] * p.x.sw + begin;
        float* target = to + o * p.y.sw + begin;
        for_vectors(end - begin, [&](const auto& get, const auto& put) { put(target, get(source)); });
    }
}

}  // namespace

NHWC_STEP(resample, Resample) {
    const Resample& p = parameters;
    float *x = at(context, p.x), *y = at(context, p.y);
    const Places depth(context, p.axis[0]), height(context, p.axis[1]), width(context, p.axis[2]);
    const int64_t rows = p.y.n * p.y.d * p.y.h;
    if (rows == 0 || p.y.c == 0) return;
    const Parts channels(p.y.c, rows >= 4 * context.threads ? p.y.c : FLOATS_PER_TASK / p.y.w, WIDE * LANES);
    const Parts groups(rows, FLOATS_PER_TASK / (p.y.w * std::min(channels.size, p.y.c)), 1);
    tasks(context, groups.count * channels.count, [&](int64_t task, int64_t) {
        const int64_t part = task % channels.count, group = task / channels.count;
        const int64_t begin = channels.begin(part), end = channels.end(part, p.y.c);
        for (int64_t row = groups.begin(group); row < groups.end(group, rows); ++row) {
            const int64_t h = row % p.y.h, d = row / p.y.h % p.y.d, n = row / p.y.h / p.y.d;
            float* to = row_of(p.y, y, n, d, h);
            if (!p.is_linear) {
                nearest_row(p, row_of(p.x, x, n, depth.low[d], height.low[h]), width, begin, end, to);
                continue;
            }
            const Between between(p.x, x, n, depth, d, height, h);
            for_channels<WIDE>(begin, end, [&](const auto& lanes, int64_t c) {
                switch (between.rows) {
                    case 1:
                        return walk<1>(p, between, width, lanes, c, to);
                    case 2:
                        return walk<2>(p, between, width, lanes, c, to);
                    default:
                        return walk<4>(p, between, width, lanes, c, to);
                }
            });
        }
    });
}

}  // namespace engine
}  // namespace nhwc
