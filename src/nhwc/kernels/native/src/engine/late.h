// Activations that registers do not hold, on the finished channels of one pixel. Out of line: there are many of them.
#pragma once

#include "activate.h"

namespace nhwc {
namespace engine {

// `pixel` holds channels [first, first + count). addend: those that come after the activation, or null.
__attribute__((noinline)) inline void activate_late(const Epilogue& epilogue, const Context& context, float* pixel,
                                                    const float* addend, int64_t count, int64_t first) {
    activate(epilogue, context, pixel, count, first);
    if (addend == nullptr) return;
    for (int64_t c = 0; c < count; ++c) pixel[c] += addend[c];
}

}  // namespace engine
}  // namespace nhwc
