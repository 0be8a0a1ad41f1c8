// Moving channels-last pixels to and from the places that a maximum pooling's indices name, channel by channel.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// Tasks wanted: samples are split into blocks of channels until there are as many.
constexpr int64_t TASKS = 16;
constexpr int64_t CACHE_LINE = 64;
// Pixels that are cleared at least at a time.
constexpr int64_t CLEARED_AHEAD = 32;

struct Blocks {
    int64_t width, count;
    Blocks(int64_t samples, int64_t channels, int64_t element) {
        const int64_t line = CACHE_LINE / element;
        const int64_t wanted = std::max<int64_t>(1, std::min((TASKS + samples - 1) / samples, channels / line));
        width = ((channels + wanted - 1) / wanted + line - 1) / line * line;
        count = (channels + width - 1) / width;
    }
};

inline void clear(char* to, int64_t pixels, int64_t stride, int64_t bytes) {
    if (stride == bytes) {
        std::memset(to, 0, static_cast<size_t>(pixels * bytes));
        return;
    }
    for (int64_t p = 0; p < pixels; ++p) std::memset(to + p * stride, 0, static_cast<size_t>(bytes));
}

// to[places[p, c], c] = or += from[p, c], and zero where no place points. Each task owns some channels of one sample, and
// clears no further ahead of the places than it must, while the memory is in the cache.
template <class T, bool ADD>
void scatter(const T* from, const int64_t* places, T* to, int64_t* outside, int64_t samples, int64_t pixels,
             int64_t plane, int64_t channels) {
    const Blocks blocks(samples, channels, sizeof(T));
    std::atomic<bool> bad{false};
    parallel_for(samples * blocks.count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / blocks.count, left = task % blocks.count * blocks.width;
            const int64_t width = std::min(channels - left, blocks.width);
            const int64_t stride = channels * static_cast<int64_t>(sizeof(T)), bytes = width * static_cast<int64_t>(sizeof(T));
            T* __restrict target = to + sample * plane * channels + left;
            int64_t cleared = 0;
            for (int64_t p = 0; p < pixels; ++p) {
                const int64_t offset = (sample * pixels + p) * channels + left;
                const int64_t* __restrict place = places + offset;
                const T* __restrict value = from + offset;
                int64_t low = place[0], high = place[0];
                for (int64_t j = 1; j < width; ++j) {
                    low = std::min(low, place[j]);
                    high = std::max(high, place[j]);
                }
                if (low < 0 || high >= plane) {
                    bad.store(true, std::memory_order_relaxed);
                    break;
                }
                if (high >= cleared) {
                    const int64_t until = std::min(plane, std::max(high + 1, cleared + CLEARED_AHEAD));
                    clear(reinterpret_cast<char*>(target + cleared * channels), until - cleared, stride, bytes);
                    cleared = until;
                }
                for (int64_t j = 0; j < width; ++j) {
                    T* at = target + place[j] * channels + j;
                    if (ADD)
                        store(at, load(at) + load(value + j));
                    else
                        *at = value[j];
                }
            }
            clear(reinterpret_cast<char*>(target + cleared * channels), plane - cleared, stride, bytes);
        }
    });
    if (bad.load()) *outside = 1;
}

template <class T>
void any_scatter(int adds, const void* from, const int64_t* places, void* to, int64_t* outside, int64_t samples,
                 int64_t pixels, int64_t plane, int64_t channels) {
    const T* values = static_cast<const T*>(from);
    if (adds)
        scatter<T, true>(values, places, static_cast<T*>(to), outside, samples, pixels, plane, channels);
    else
        scatter<T, false>(values, places, static_cast<T*>(to), outside, samples, pixels, plane, channels);
}

// to[p, c] = from[places[p, c], c]
template <class T>
void gather(const void* from, const int64_t* places, void* to, int64_t* outside, int64_t samples, int64_t pixels,
            int64_t plane, int64_t channels) {
    std::atomic<bool> bad{false};
    parallel_for(samples * pixels, grain_for(channels * 2), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
            const int64_t* __restrict place = places + p * channels;
            const T* __restrict source = static_cast<const T*>(from) + p / pixels * plane * channels;
            T* __restrict target = static_cast<T*>(to) + p * channels;
            int64_t low = place[0], high = place[0];
            for (int64_t j = 1; j < channels; ++j) {
                low = std::min(low, place[j]);
                high = std::max(high, place[j]);
            }
            if (low < 0 || high >= plane) {
                bad.store(true, std::memory_order_relaxed);
                return;
            }
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < channels; ++j) target[j] = source[place[j] * channels + j];
        }
    });
    if (bad.load()) *outside = 1;
}

}  // namespace
}  // namespace nhwc

// Both set *outside where a place lies outside the plane (`plane` pixels); what they have written is then worth nothing.
NHWC_EXPORT(pool_scatter)(int dtype, int adds, const void* from, const int64_t* places, void* to, int64_t* outside,
                          int64_t samples, int64_t pixels, int64_t plane, int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::any_scatter, adds, from, places, to, outside, samples, pixels, plane, channels)
}

NHWC_EXPORT(pool_gather)(int dtype, const void* from, const int64_t* places, void* to, int64_t* outside, int64_t samples,
                         int64_t pixels, int64_t plane, int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::gather, from, places, to, outside, samples, pixels, plane, channels)
}
