// Depthwise convolution with any kernel, stride, dilation and padding, of images or volumes, with one or more output
// channels for each of the input: pixel by pixel, over the taps that lie within the input.
#include <algorithm>

#include "conv.h"
#include "depthwise.h"
#include "late.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

using depthwise::PACK;
using depthwise::packed;

// Taps of one dimension that meet the input, [from, to), and the place that tap 0 would meet.
struct Reach {
    int64_t first, from, to;
};

Reach reach(int64_t place, int64_t stride, int64_t padding, int64_t dilation, int64_t kernel, int64_t size) {
    const int64_t first = place * stride - padding;
    const int64_t from = first >= 0 ? 0 : (-first + dilation - 1) / dilation;
    const int64_t to = size <= first ? 0 : (size - first + dilation - 1) / dilation;
    return {first, std::min(from, kernel), std::min(to, kernel)};
}

// Input channels of output channels [c, c + count): each feeds `multiplier` of them.
vf repeated(const float* pixel, int64_t c, int64_t count, int64_t multiplier) {
    float lanes[LANES] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i] = pixel[(c + i) / multiplier];
    return load(lanes);
}

// V vectors of channels from c on, the last of them with `part` channels if part > 0.
template <int V, bool REPEATED>
void run_vectors(const Conv& conv, const float* x, const float* weight, const float* bias, const Reach (&reaches)[3],
                 const float* addend, const Bounds& bounds, float* y, int64_t c, int64_t part) {
    const int64_t taps = conv.kernel[0] * conv.kernel[1] * conv.kernel[2], multiplier = conv.y.c / conv.x.c;
    vf sums[V];
    for (int v = 0; v < V; ++v) sums[v] = load(bias + c + v * LANES);
    for (int64_t d = reaches[0].from; d < reaches[0].to; ++d)
        for (int64_t h = reaches[1].from; h < reaches[1].to; ++h)
            for (int64_t w = reaches[2].from; w < reaches[2].to; ++w) {
                const int64_t tap = (d * conv.kernel[1] + h) * conv.kernel[2] + w;
                const float* pixel = x + (reaches[0].first + d * conv.dilation[0]) * conv.x.sd +
                                     (reaches[1].first + h * conv.dilation[1]) * conv.x.sh +
                                     (reaches[2].first + w * conv.dilation[2]) * conv.x.sw;
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) {
                    const int64_t channel = c + v * LANES, count = part > 0 ? part : LANES;
                    vf value;
                    if (REPEATED)
                        value = repeated(pixel, channel, count, multiplier);
                    else
                        value = part > 0 ? load_part(pixel + channel, part) : load(pixel + channel);
                    sums[v] += value * load(packed(weight, taps, channel) + tap * PACK);
                }
            }
    const bool last = conv.epilogue.addend_last != 0;
    for (int v = 0; v < V; ++v) {
        const int64_t channel = c + v * LANES;
        vf more{};
        if (addend != nullptr) more = part > 0 ? load_part(addend + channel, part) : load(addend + channel);
        const vf result = last ? bounded(sums[v], bounds) + more : bounded(sums[v] + more, bounds);
        if (part > 0)
            store_part(y + channel, result, part);
        else
            store(y + channel, result);
    }
}

template <bool REPEATED>
void run_pixel(const Conv& conv, const float* x, const float* weight, const float* bias, const Reach (&reaches)[3],
               const float* addend, const Bounds& bounds, float* y) {
    int64_t c = 0;
    for (; c + 4 * LANES <= conv.y.c; c += 4 * LANES)
        run_vectors<4, REPEATED>(conv, x, weight, bias, reaches, addend, bounds, y, c, 0);
    for (; c + LANES <= conv.y.c; c += LANES)
        run_vectors<1, REPEATED>(conv, x, weight, bias, reaches, addend, bounds, y, c, 0);
    if (c < conv.y.c) run_vectors<1, REPEATED>(conv, x, weight, bias, reaches, addend, bounds, y, c, conv.y.c - c);
}

void run_row(const Conv& conv, const Context& context, int64_t n, int64_t depth, int64_t row) {
    const Rows &y = conv.y, &more = conv.epilogue.addend;
    const float *x = at(context, conv.x) + n * conv.x.sn, *weight = at(context, conv.weight),
                *bias = at(context, conv.bias);
    const bool in_registers = is_in_registers(conv.epilogue), has_addend = more.at.base >= 0;
    const bool adds_after = has_addend && !in_registers && conv.epilogue.addend_last;
    const Bounds bounds = bounds_of(conv.epilogue);
    Reach reaches[3];
    const auto reach_of = [&](int i, int64_t place, int64_t size) {
        return reach(place, conv.stride[i], conv.padding[i], conv.dilation[i], conv.kernel[i], size);
    };
    reaches[0] = reach_of(0, depth, conv.x.d);
    reaches[1] = reach_of(1, row, conv.x.h);
    for (int64_t column = 0; column < y.w; ++column) {
        reaches[2] = reach_of(2, column, conv.x.w);
        float* to = at(context, y) + n * y.sn + depth * y.sd + row * y.sh + column * y.sw;
        const float* addend = nullptr;
        if (has_addend) addend = at(context, more) + n * more.sn + depth * more.sd + row * more.sh + column * more.sw;
        const float* early = adds_after ? nullptr : addend;
        if (conv.x.c == y.c)
            run_pixel<false>(conv, x, weight, bias, reaches, early, bounds, to);
        else
            run_pixel<true>(conv, x, weight, bias, reaches, early, bounds, to);
        if (!in_registers) activate_late(conv.epilogue, context, to, adds_after ? addend : nullptr, y.c, 0);
    }
}

}  // namespace

NHWC_STEP(conv_depthwise_general, Conv) {
    const Rows& y = parameters.y;
    tasks(context, y.n * y.d * y.h,
          [&](int64_t task, int64_t) { run_row(parameters, context, task / y.h / y.d, task / y.h % y.d, task % y.h); });
}

}  // namespace engine
}  // namespace nhwc
