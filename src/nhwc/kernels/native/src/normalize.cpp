// 8-bit pictures to floating point: (value / 255 - mean) / std, in one pass over the pixels.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "stream.h"
#include "vector.h"

namespace nhwc {
namespace {

// Pixels per round: a multiple of 32, so that every round fills whole lines of the caches.
constexpr int64_t ROUND_VALUES = 1536;
constexpr int64_t ROUNDS_PER_TASK = 32;

// True divisions, so that every instruction set gives the bits of the three operators that this stands for.
template <class A>
inline A normalized(uint8_t value, A mean, A std) {
    return (static_cast<A>(static_cast<int32_t>(value)) / A(255) - mean) / std;
}

// Computes every value of a round.
template <class T>
struct Computed {
    using A = accumulate_t<T>;
    std::vector<A> mean, std;

    Computed(const A* means, const A* stds, int64_t channels, int64_t count)
        : mean(static_cast<size_t>(count)), std(mean) {
        for (int64_t j = 0; j < count; ++j) {
            mean[j] = means[j % channels];
            std[j] = stds[j % channels];
        }
    }
    void run(const uint8_t* __restrict in, T* __restrict out, int64_t count) const {
        const A* __restrict m = mean.data();
        const A* __restrict s = std.data();
        NHWC_INDEPENDENT
        for (int64_t j = 0; j < count; ++j) store(out + j, normalized(in[j], m[j], s[j]));
    }
};

// Looks every value up: rounding to float16 takes longer than that wherever compilers know no vectors for it.
struct LookedUp {
    std::vector<_Float16> table;
    std::vector<int32_t> row;

    LookedUp(const float* means, const float* stds, int64_t channels, int64_t count)
        : table(static_cast<size_t>(channels * 256)), row(static_cast<size_t>(count)) {
        for (int64_t c = 0; c < channels; ++c)
            for (int value = 0; value < 256; ++value)
                store(&table[c * 256 + value], normalized(static_cast<uint8_t>(value), means[c], stds[c]));
        for (int64_t j = 0; j < count; ++j) row[j] = static_cast<int32_t>(j % channels * 256);
    }
    void run(const uint8_t* __restrict in, _Float16* __restrict out, int64_t count) const {
        for (int64_t j = 0; j < count; ++j) out[j] = table[row[j] + in[j]];
    }
};

template <class T>
void normalize(const uint8_t* from, void* to, int64_t pixels, int64_t channels, const void* means, const void* stds) {
    using A = accumulate_t<T>;
    const int64_t round = std::max<int64_t>(1, ROUND_VALUES / channels / 32) * 32;
    const int64_t task = round * ROUNDS_PER_TASK;
    const bool streamed = is_streamed(pixels * channels * static_cast<int64_t>(sizeof(T)));
    const std::conditional_t<std::is_same<T, _Float16>::value, LookedUp, Computed<T>> values(
        static_cast<const A*>(means), static_cast<const A*>(stds), channels, round * channels);
    parallel_for((pixels + task - 1) / task, 1, [&](int64_t begin, int64_t end) {
        std::vector<T> made(static_cast<size_t>(streamed ? round * channels : 0));
        for (int64_t first = begin * task; first < std::min(pixels, end * task); first += round) {
            const int64_t count = std::min(round, pixels - first) * channels;
            T* out = static_cast<T*>(to) + first * channels;
            values.run(from + first * channels, streamed ? made.data() : out, count);
            if (streamed) stream_out(made.data(), out, count);
        }
        if (streamed) finish_streams();
    });
}

}  // namespace
}  // namespace nhwc

// means, stds: one per channel, of the type that the arithmetic runs in.
NHWC_EXPORT(normalize)(int dtype, const uint8_t* from, void* to, int64_t pixels, int64_t channels, const void* means,
                       const void* stds) {
    NHWC_FOR_DTYPE(dtype, nhwc::normalize, from, to, pixels, channels, means, stds)
}
