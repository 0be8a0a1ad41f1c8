// Runs the functions of one compiled library without torch and compares them with plain loops, on one thread and on
// several: driver LIBRARY. The last line says how many comparisons held.
#include <thread>

#include "checks.h"

namespace checks {
void* library = nullptr;
int checked = 0, failed = 0;
}  // namespace checks

namespace {

using chunk_t = void (*)(int64_t, int64_t, void*);

// Stands in for torch's loop: a thread per chunk, four at most.
int32_t on_threads(int64_t begin, int64_t end, int64_t grain, chunk_t chunk, void* context) {
    const int64_t most = std::max<int64_t>(1, std::min<int64_t>(4, (end - begin) / std::max<int64_t>(grain, 1)));
    const int64_t size = (end - begin + most - 1) / most;
    std::vector<std::thread> threads;
    for (int64_t first = begin; first < end; first += size)
        threads.emplace_back(chunk, first, std::min(end, first + size), context);
    for (std::thread& each : threads) each.join();
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::fprintf(stderr, "usage: %s LIBRARY\n", arguments[0]);
        return 2;
    }
    checks::library = dlopen(arguments[1], RTLD_NOW);
    if (checks::library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    std::printf("best instruction set: %s\n", checks::function<const char*()>("best_instruction_set")());
    for (void* threads : {static_cast<void*>(nullptr), reinterpret_cast<void*>(&on_threads)}) {
        checks::function<void(void*)>("use_threads")(threads);
        checks::moves();
        checks::channels();
        checks::windows();
        checks::sampling();
        checks::pictures();
    }
    std::printf("%d passed, %d failed\n", checks::checked - checks::failed, checks::failed);
    return checks::failed == 0 ? 0 : 1;
}
