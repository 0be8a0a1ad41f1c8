// What the library says of itself, and the threads that Python lends it.
#include "parallel.h"

namespace nhwc {
parallel_for_t torch_parallel_for = nullptr;
}

extern "C" {

// Counts up with every change of an exported function; Python refuses a library of another number.
__attribute__((visibility("default"))) int64_t nhwc_interface() { return 6; }

__attribute__((visibility("default"))) void nhwc_use_threads(void* torch_parallel_for) {
    nhwc::torch_parallel_for = reinterpret_cast<nhwc::parallel_for_t>(torch_parallel_for);
}

// The best instruction set that this processor has, by its name in build.py.
__attribute__((visibility("default"))) const char* nhwc_best_instruction_set() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        return "avx2";
#elif defined(__aarch64__)
    return "neon";
#endif
    return "portable";
}
}
