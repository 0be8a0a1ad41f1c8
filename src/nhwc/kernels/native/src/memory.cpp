// Advice to the operating system about memory that torch allocated.
#include <cstdint>

#include "export.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

// Asks for huge pages where the block covers whole ones: a fresh block is then mapped in 2 MiB steps instead of 4 KiB.
// Advice only: it changes no contents, and goes when the block is unmapped.
NHWC_EXPORT(advise_huge_pages)(void* block, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t HUGE = uintptr_t{1} << 21;
    const uintptr_t start = reinterpret_cast<uintptr_t>(block);
    const uintptr_t first = (start + HUGE - 1) / HUGE * HUGE, last = (start + static_cast<uintptr_t>(bytes)) / HUGE * HUGE;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}
