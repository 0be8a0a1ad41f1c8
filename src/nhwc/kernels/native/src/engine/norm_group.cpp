// Group and instance norm over channels-last rows, with the activation that follows.
//
// Sums and squares of every channel are taken about the mean of some pixels, so that a large mean costs no digits;
// float sums go on in double after 32 pixels. A picture that stays in the cache is one task, from its sums to its
// result.
#include <cmath>

#include "across.h"
#include "arithmetic.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int64_t PIXELS_PER_FLUSH = 32;
constexpr int64_t PIVOT_PIXELS = 16;

struct GroupNorm {
    Rows x, y;
    Epilogue epilogue;
    Ref weight, bias;  // base < 0: none
    int64_t groups;
    int64_t task_pixels;  // of a picture that is shared out
    double eps;
};

int64_t pixels_of(const GroupNorm& p) { return p.x.d * p.x.h * p.x.w; }

int64_t offset_of(const Rows& rows, int64_t pixel) {
    const int64_t line = pixel / rows.w;
    return line / rows.h * rows.sd + line % rows.h * rows.sh + pixel % rows.w * rows.sw;
}

// body(pixel, count) over stretches of [first, last) that lie in one row of pixels and are no longer than `most`.
template <class Body>
inline void for_stretches(const Rows& rows, int64_t first, int64_t last, int64_t most, const Body& body) {
    for (int64_t pixel = first; pixel < last;) {
        const int64_t stop = std::min({last, (pixel / rows.w + 1) * rows.w, pixel + most});
        body(pixel, stop - pixel);
        pixel = stop;
    }
}

// The memory of one picture: sums and squares of each task's channels in double, then what its pixels need.
struct Picture {
    double* sums;
    float *pivot, *centre, *scale, *shift;
    int64_t tasks;

    Picture(const GroupNorm& p, const Context& context, int64_t n)
        : tasks((pixels_of(p) + p.task_pixels - 1) / p.task_pixels) {
        const int64_t doubles = 2 * tasks * p.x.c;
        char* own = context.scratch + n * (doubles * 8 + 4 * p.x.c * 4);
        sums = reinterpret_cast<double*>(own);
        pivot = reinterpret_cast<float*>(sums + doubles);
        centre = pivot + p.x.c;
        scale = centre + p.x.c;
        shift = scale + p.x.c;
    }
};

void find_pivot(const GroupNorm& p, const float* x, float* pivot) {
    const int64_t pixels = pixels_of(p), count = std::min(pixels, PIVOT_PIXELS);
    std::fill(pivot, pivot + p.x.c, 0.0f);
    for (int64_t k = 0; k < count; ++k) {
        const float* from = x + offset_of(p.x, k * (pixels / count));
        for_vectors(p.x.c, [&](const auto& get, const auto& put) {
            put(pivot, get(pivot) + get(from) / static_cast<float>(count));
        });
    }
}

// The floats of V vectors are added to as many doubles.
template <class L>
inline void flush(const L& lanes, const vf* values, double* into, int64_t channels) {
    float plain[L::vectors * LANES];
    for (int k = 0; k < L::vectors; ++k) store(plain + k * LANES, values[k]);
    for (int64_t j = 0; j < channels; ++j) into[j] += static_cast<double>(plain[j]);
}

void sum_pixels(const GroupNorm& p, const float* x, const float* pivot, int64_t first, int64_t last, double* sums) {
    std::fill(sums, sums + 2 * p.x.c, 0.0);
    for_stretches(p.x, first, last, PIXELS_PER_FLUSH, [&](int64_t pixel, int64_t count) {
        const float* start = x + offset_of(p.x, pixel);
        for_channels<WIDE>(0, p.x.c, [&](const auto& lanes, int64_t c) {
            constexpr int V = std::decay_t<decltype(lanes)>::vectors;
            vf about[V], one[V]{}, two[V]{};
            for (int k = 0; k < V; ++k) about[k] = lanes.get(pivot + c, k);
            const float* from = start + c;
            for (int64_t i = 0; i < count; ++i, from += p.x.sw)
                for (int k = 0; k < V; ++k) {
                    const vf d = lanes.get(from, k) - about[k];
                    one[k] += d;
                    two[k] += d * d;
                }
            const int64_t channels = std::min<int64_t>(V * LANES, p.x.c - c);
            flush(lanes, one, sums + c, channels);
            flush(lanes, two, sums + p.x.c + c, channels);
        });
    });
}

void finish_sums(const GroupNorm& p, const Context& context, const Picture& own) {
    const int64_t channels = p.x.c, per_group = channels / p.groups;
    const float* weight = p.weight.base < 0 ? nullptr : at(context, p.weight);
    const float* bias = p.bias.base < 0 ? nullptr : at(context, p.bias);
    for (int64_t task = 1; task < own.tasks; ++task)
        for (int64_t j = 0; j < 2 * channels; ++j) own.sums[j] += own.sums[task * 2 * channels + j];
    const double pixels = static_cast<double>(pixels_of(p));
    for (int64_t first = 0; first < channels; first += per_group) {
        double centre = 0.0, spread = 0.0;
        const auto mean = [&](int64_t c) { return static_cast<double>(own.pivot[c]) + own.sums[c] / pixels; };
        for (int64_t c = first; c < first + per_group; ++c) centre += mean(c) / static_cast<double>(per_group);
        for (int64_t c = first; c < first + per_group; ++c) {
            const double off = mean(c) - centre;
            spread += own.sums[channels + c] - own.sums[c] * own.sums[c] / pixels + pixels * off * off;
        }
        const double variance = spread / (pixels * static_cast<double>(per_group));
        const double scale = 1.0 / std::sqrt((variance < 0.0 ? 0.0 : variance) + p.eps);
        for (int64_t c = first; c < first + per_group; ++c) {
            const double own_scale = weight == nullptr ? scale : scale * static_cast<double>(weight[c]);
            own.centre[c] = static_cast<float>(centre);
            own.scale[c] = static_cast<float>(own_scale);
            // with what the mean lost when it became a float
            const double lost = centre - static_cast<double>(own.centre[c]);
            own.shift[c] =
                static_cast<float>((bias == nullptr ? 0.0 : static_cast<double>(bias[c])) - lost * own_scale);
        }
    }
}

template <int64_t KIND>
void write_pixels(const GroupNorm& p, const Context& context, const Picture& own, const float* x, float* y,
                  int64_t first, int64_t last) {
    const float lo = static_cast<float>(p.epilogue.lo), hi = static_cast<float>(p.epilogue.hi);
    const float* slope = KIND == PRELU ? at(context, p.epilogue.slope) : nullptr;
    for_stretches(p.x, first, last, last - first, [&](int64_t pixel, int64_t count) {
        const float* from = x + offset_of(p.x, pixel);
        float* to = y + offset_of(p.y, pixel);
        for (int64_t i = 0; i < count; ++i, from += p.x.sw, to += p.y.sw)
            for_vectors(p.x.c, [&](const auto& get, const auto& put) {
                const vf value = (get(from) - get(own.centre)) * get(own.scale) + get(own.shift);
                put(to, activated<KIND>(value, lo, hi, KIND == PRELU ? get(slope) : vf{}));
            });
    });
}

}  // namespace

// Scratch: per picture 2 doubles for each task and channel, and 4 floats for each channel.
NHWC_STEP(norm_group, GroupNorm) {
    const GroupNorm& p = parameters;
    const int64_t pixels = pixels_of(p), pictures = p.x.n;
    if (pictures == 0 || pixels == 0 || p.x.c == 0) return;
    float *x = at(context, p.x), *y = at(context, p.y);
    const int64_t per_picture = (pixels + p.task_pixels - 1) / p.task_pixels;
    const auto sum = [&](int64_t n, int64_t task) {
        const Picture own(p, context, n);
        float* from = x + n * p.x.sn;
        const int64_t first = task * p.task_pixels;
        sum_pixels(p, from, own.pivot, first, std::min(pixels, first + p.task_pixels), own.sums + task * 2 * p.x.c);
    };
    const auto write = [&](int64_t n, int64_t task) {
        const int64_t first = task * p.task_pixels, last = std::min(pixels, first + p.task_pixels);
        with_activation(p.epilogue.activation, [&](auto known) {
            write_pixels<decltype(known)::kind>(p, context, Picture(p, context, n), x + n * p.x.sn, y + n * p.y.sn,
                                                first, last);
        });
    };
    const auto pivot = [&](int64_t n) { find_pivot(p, x + n * p.x.sn, Picture(p, context, n).pivot); };
    const auto finish = [&](int64_t n) { finish_sums(p, context, Picture(p, context, n)); };
    if (per_picture == 1 || pictures >= context.threads) {
        tasks(context, pictures, [&](int64_t n, int64_t) {
            pivot(n);
            for (int64_t task = 0; task < per_picture; ++task) sum(n, task);
            finish(n);
            // what was summed last is still in the cache
            for (int64_t task = per_picture; task-- > 0;) write(n, task);
        });
        return;
    }
    for (int64_t n = 0; n < pictures; ++n) pivot(n);
    tasks(context, pictures * per_picture, [&](int64_t task, int64_t) { sum(task / per_picture, task % per_picture); });
    for (int64_t n = 0; n < pictures; ++n) finish(n);
    tasks(context, pictures * per_picture,
          [&](int64_t task, int64_t) { write(task / per_picture, task % per_picture); });
}

}  // namespace engine
}  // namespace nhwc
