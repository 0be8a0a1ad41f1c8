// Whole output rows of a depthwise convolution, for steps that have some other use for them too.
#pragma once

#include "conv.h"
#include "epilogue.h"

namespace nhwc {
namespace engine {
namespace depthwise {

// A convolution and where its tensors lie; channels [from, to), from a multiple of PACK.
struct Job {
    const Conv& conv;
    const Context& context;
    const float *x, *weight, *bias;
    float* y;
    const float* addend;  // null: none
    Bounds bounds;
    int64_t from, to;

    Job(const Conv& conv, const Context& context, int64_t from, int64_t to)
        : conv(conv),
          context(context),
          x(at(context, conv.x)),
          weight(at(context, conv.weight)),
          bias(at(context, conv.bias)),
          y(at(context, conv.y)),
          addend(conv.epilogue.addend.at.base < 0 ? nullptr : at(context, conv.epilogue.addend)),
          bounds(bounds_of(conv.epilogue)),
          from(from),
          to(to) {}
};

using rows_t = void (*)(const Job& job, int64_t n, int64_t row);

// The kernels of a convolution whose kernel is 3, 5 or 7 and whose stride is 1 or 2: of one output row, and of two,
// null where those do not fit the registers or are not asked for. conv.choice: pixels (7 or 4), rows (1 or 2).
struct Kernels {
    rows_t one, two;

    void run(const Job& job, int64_t n, int64_t row, int64_t end) const {
        if (two != nullptr)
            for (; row + 2 <= end; row += 2) two(job, n, row);
        for (; row < end; ++row) one(job, n, row);
    }
};

Kernels kernels_of(const Conv& conv);

}  // namespace depthwise
}  // namespace engine
}  // namespace nhwc
