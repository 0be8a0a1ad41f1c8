// The arithmetic peak that shares of it are shares of: multiplications with additions, on registers alone.
#include "../export.h"
#include "simd.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

// As many sums as hide the latency of two units and leave registers for the operands.
constexpr int SUMS = REGISTERS * 3 / 4;

float multiply_add(int64_t rounds) {
    vf sums[SUMS], factor = splat(0.999f), term = splat(0.001f);
#pragma GCC unroll 32
    for (int i = 0; i < SUMS; ++i) sums[i] = splat(static_cast<float>(i));
    for (int64_t round = 0; round < rounds; ++round) {
        // constants would be read from memory each time, and sums that nothing changes between would be computed ahead
        asm volatile("" : "+r"(round));
#pragma GCC unroll 32
        for (int i = 0; i < SUMS; ++i) sums[i] = sums[i] * factor + term;
    }
    vf total{};
#pragma GCC unroll 32
    for (int i = 0; i < SUMS; ++i) total += sums[i];
    return total[0];
}

}  // namespace

// Runs `rounds` on each of so many threads, and writes how many operations those are together.
NHWC_EXPORT(engine_peak)(int64_t threads, int64_t rounds, int64_t* operations) {
    volatile float seen = 0;
    tasks({nullptr, threads, nullptr}, threads, [&](int64_t, int64_t) { seen = multiply_add(rounds); });
    (void)seen;
    *operations = threads * rounds * SUMS * LANES * 2;
}

}  // namespace engine
}  // namespace nhwc
