// Runs a program: its steps one after the other, each on torch's threads.
#include <chrono>

#include "step.h"

namespace nhwc {
namespace engine {
namespace {

int64_t now_ns() {
    using namespace std::chrono;
    return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// times_ns: null, or one number per step to which that step's time is added.
extern "C" __attribute__((visibility("default"))) void nhwc_engine_run(const Step* steps, int64_t count,
                                                                       char* const* table, char* scratch,
                                                                       int64_t threads, int64_t* times_ns) {
    const Context context{table, threads, scratch};
    if (times_ns == nullptr) {
        for (int64_t i = 0; i < count; ++i) steps[i].run(steps[i].parameters, &context);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        const int64_t start = now_ns();
        steps[i].run(steps[i].parameters, &context);
        times_ns[i] += now_ns() - start;
    }
}

}  // namespace engine
}  // namespace nhwc
