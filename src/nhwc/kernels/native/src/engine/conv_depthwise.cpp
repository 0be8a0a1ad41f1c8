// Depthwise convolution of images, square kernels of 3, 5 and 7 with stride 1 or 2: registers hold pixels of one or two
// output rows, so that neighbours share their loads. See nhwc/inference/steps/depthwise.py for the packing.
#include <algorithm>

#include "depthwise.h"
#include "depthwise_rows.h"
#include "late.h"
#include "tasks.h"

namespace nhwc {
namespace engine {

using namespace depthwise;

namespace {

// One block of pixels, all channels of the job.
template <int K, int S, int P, int R, bool EDGE>
void run_block(const Job& job, const float* x, const Window& window, const Target& target, int64_t pixels) {
    const Conv& conv = job.conv;
    constexpr int64_t taps = K * K;
    int64_t c = job.from;
    for (; c + LANES <= job.to; c += LANES) {
        vf sums[R][P];
        const vf bias = load(job.bias + c);
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
            for (int p = 0; p < P; ++p) sums[r][p] = bias;
        add_window<K, S, P, R, EDGE, false>(sums, x + c, conv.x.sh, conv.x.sw, packed(job.weight, taps, c), window, 0);
        finish<P, R, EDGE, false>(sums, target, c, pixels, 0);
    }
    if (c == job.to) return;
    const int64_t part = job.to - c;
    vf sums[R][P];
    const vf bias = load(job.bias + c);
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) sums[r][p] = bias;
    add_window<K, S, P, R, EDGE, true>(sums, x + c, conv.x.sh, conv.x.sw, packed(job.weight, taps, c), window, part);
    finish<P, R, EDGE, true>(sums, target, c, pixels, part);
}

// What does not fit in registers, on what finish has stored.
void activate_pixels(const Job& job, int64_t n, int64_t row, int64_t column, int64_t rows, int64_t pixels) {
    const Conv& conv = job.conv;
    for (int64_t r = row; r < row + rows; ++r)
        for (int64_t p = column; p < column + pixels; ++p) {
            float* to = job.y + n * conv.y.sn + r * conv.y.sh + p * conv.y.sw + job.from;
            const Rows& more = conv.epilogue.addend;
            const bool adds = job.addend != nullptr && conv.epilogue.addend_last;
            const float* late = adds ? job.addend + n * more.sn + r * more.sh + p * more.sw + job.from : nullptr;
            activate_late(conv.epilogue, job.context, to, late, job.to - job.from, job.from);
        }
}

template <int K, int S, int P, int R>
void run_rows(const Job& job, int64_t n, int64_t row) {
    const Conv& conv = job.conv;
    const Rows &x = conv.x, &y = conv.y, &more = conv.epilogue.addend;
    const bool in_registers = is_in_registers(conv.epilogue);
    const bool adds = job.addend != nullptr && (in_registers || !conv.epilogue.addend_last);
    const int64_t first_row = row * S - conv.padding[1];
    Window window;
    window.row_from = std::max<int64_t>(0, -first_row);
    window.row_to = std::min<int64_t>(K + (R - 1) * S, x.h - first_row);
    constexpr int columns = (P - 1) * S + K;
    for (int64_t column = 0; column < y.w; column += P) {
        const int64_t first_column = column * S - conv.padding[2], pixels = std::min<int64_t>(P, y.w - column);
        window.column_from = std::max<int64_t>(0, -first_column);
        window.column_to = std::min<int64_t>(columns, x.w - first_column);
        const float* from = job.x + n * x.sn + first_row * x.sh + first_column * x.sw;
        const Target target{job.y + n * y.sn + row * y.sh + column * y.sw,
                            y.sh,
                            y.sw,
                            adds ? job.addend + n * more.sn + row * more.sh + column * more.sw : nullptr,
                            more.sh,
                            more.sw,
                            job.bounds,
                            conv.epilogue.addend_last != 0};
        if (window.column_from == 0 && window.column_to == columns && pixels == P)
            run_block<K, S, P, R, false>(job, from, window, target, pixels);
        else
            run_block<K, S, P, R, true>(job, from, window, target, pixels);
        if (!in_registers) activate_pixels(job, n, row, column, R, pixels);
    }
}

template <int K, int S, int P>
Kernels with_rows(const Conv& conv) {
    // two rows' sums and weights, and one vector of input
    if constexpr (S == 1 && 2 * (P + K) < REGISTERS) {
        if (conv.choice[1] == 2) return {run_rows<K, S, P, 1>, run_rows<K, S, P, 2>};
    }
    return {run_rows<K, S, P, 1>, nullptr};
}

template <int K>
Kernels with_kernel(const Conv& conv) {
    const bool wide = conv.choice[0] == 7;
    if (conv.stride[1] == 1) return wide ? with_rows<K, 1, 7>(conv) : with_rows<K, 1, 4>(conv);
    return wide ? with_rows<K, 2, 7>(conv) : with_rows<K, 2, 4>(conv);
}

}  // namespace

Kernels depthwise::kernels_of(const Conv& conv) {
    switch (conv.kernel[1]) {
        case 3:
            return with_kernel<3>(conv);
        case 5:
            return with_kernel<5>(conv);
        default:
            return with_kernel<7>(conv);
    }
}

// A task is a run of output rows of one picture, over one block of channels. choice: pixels, rows in registers (two
// where they suffice), channels of a block (a multiple of PACK), rows of a task.
NHWC_STEP(conv_depthwise, Conv) {
    const Conv& conv = parameters;
    const int64_t channels = conv.choice[2], rows = conv.choice[3];
    const int64_t blocks = (conv.y.c + channels - 1) / channels, runs = (conv.y.h + rows - 1) / rows;
    const Kernels kernels = kernels_of(conv);
    tasks(context, conv.y.n * runs * blocks, [&](int64_t task, int64_t) {
        const int64_t block = task % blocks, run = task / blocks % runs, n = task / blocks / runs;
        const Job job(conv, context, block * channels, std::min(conv.y.c, (block + 1) * channels));
        kernels.run(job, n, run * rows, std::min(conv.y.h, (run + 1) * rows));
    });
}

}  // namespace engine
}  // namespace nhwc
