// Tasks of one step, shared out among the threads: each has a run of neighbours of its own and takes others' when done.
//
// A thread gets the same share of every step, so rows are read by the core that made them; what is taken at the end evens
// out a core that was slow. No task waits for another, as parallel.h asks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "../parallel.h"
#include "step.h"

namespace nhwc {
namespace engine {

constexpr int64_t MOST_SLOTS = 256;

// body(task, slot) for every task in [0, count); slot < min(threads, MOST_SLOTS) is unique among what runs at once.
template <class Body>
void tasks(const Context& context, int64_t count, const Body& body) {
    const int64_t slots = std::min({context.threads, count, MOST_SLOTS});
    if (slots <= 1) {
        for (int64_t task = 0; task < count; ++task) body(task, int64_t{0});
        return;
    }
    struct alignas(64) Share {
        std::atomic<int64_t> next;
        int64_t end;
    };
    Share shares[MOST_SLOTS];
    for (int64_t slot = 0; slot < slots; ++slot) {
        shares[slot].next.store(count * slot / slots, std::memory_order_relaxed);
        shares[slot].end = count * (slot + 1) / slots;
    }
    parallel_for(slots, 1, [&](int64_t begin, int64_t end) {
        for (int64_t slot = begin; slot < end; ++slot)
            for (int64_t turn = 0; turn < slots; ++turn) {
                Share& share = shares[(slot + turn) % slots];
                for (;;) {
                    const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
                    if (task >= share.end) break;
                    body(task, slot);
                }
            }
    });
}

}  // namespace engine
}  // namespace nhwc
