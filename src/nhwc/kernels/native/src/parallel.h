// Loops on torch's own threads.
//
// torch exports torch_parallel_for from libtorch_cpu as part of its stable C interface (2.10 and later); Python hands
// its address over once. The chunks may run one after the other on one thread, so no chunk may wait for another.
#pragma once

#include <cstdint>

namespace nhwc {

using chunk_t = void (*)(int64_t begin, int64_t end, void* context);
using parallel_for_t = int32_t (*)(int64_t begin, int64_t end, int64_t grain, chunk_t chunk, void* context);

extern parallel_for_t torch_parallel_for;  // null: everything on the calling thread

// body(begin, end) over [0, count) in chunks of at least `grain`, on torch's threads.
template <class Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
    if (count <= 0) return;
    if (torch_parallel_for == nullptr || count <= grain) {
        body(int64_t{0}, count);
        return;
    }
    torch_parallel_for(
        0, count, grain,
        [](int64_t begin, int64_t end, void* context) { (*static_cast<const Body*>(context))(begin, end); },
        const_cast<void*>(static_cast<const void*>(&body)));
}

// The grain at which a chunk of items of `work` elements each is worth a thread.
inline int64_t grain_for(int64_t work) {
    constexpr int64_t worthwhile = 32768;
    return work >= worthwhile ? 1 : (worthwhile + work - 1) / (work > 0 ? work : 1);
}

}  // namespace nhwc
