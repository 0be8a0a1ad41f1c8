// Fractional maximum pooling over channels-last rows: every channel of every sample has windows of its own.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

struct Axis {
    int64_t in, out, window;
    int64_t sample;  // which of the random numbers of a channel places its windows
};

// Rounded to T, as arithmetic in T rounds every step.
template <class T>
accumulate_t<T> rounded(accumulate_t<T> value) {
    T held;
    store(&held, value);
    return load(&held);
}

// Where the windows of one axis start: (samples, out, channels). False where one would leave the input.
template <class T>
bool place_windows(const T* random, int64_t samples, int64_t channels, int64_t per_channel, const Axis& axis,
                   std::vector<int32_t>& starts) {
    using A = accumulate_t<T>;
    const int64_t last = axis.in - axis.window;
    const A step = axis.out > 1 ? rounded<T>(rounded<T>(static_cast<A>(last)) / rounded<T>(static_cast<A>(axis.out - 1))) : A(0);
    starts.assign(static_cast<size_t>(samples * axis.out * channels), static_cast<int32_t>(last));
    bool inside = true;
    for (int64_t n = 0; n < samples; ++n)
        for (int64_t c = 0; c < channels; ++c) {
            const A number = load(random + (n * channels + c) * per_channel + axis.sample);
            if (axis.out > 1 && !(number >= A(0) && number <= A(1))) return false;  // NaN included
            const int32_t origin = static_cast<int32_t>(rounded<T>(number * step));
            for (int64_t o = 0; o + 1 < axis.out; ++o) {
                const A moved = rounded<T>(rounded<T>(rounded<T>(static_cast<A>(o)) + number) * step);
                const int32_t start = static_cast<int32_t>(moved) - origin;
                inside = inside && start >= 0 && start <= last;
                starts[static_cast<size_t>((n * axis.out + o) * channels + c)] = start;
            }
        }
    return inside;
}

template <class T>
void fractional(const void* x, const void* random, void* y, int64_t* indices, int64_t* outside, const Axis& depth,
                const Axis& height, const Axis& width, int64_t samples, int64_t channels, int64_t per_channel) {
    using A = accumulate_t<T>;
    using Place = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;
    std::vector<int32_t> starts[3];
    const Axis* axes[3] = {&depth, &height, &width};
    for (int k = 0; k < 3; ++k)
        if (!place_windows(static_cast<const T*>(random), samples, channels, per_channel, *axes[k], starts[k])) {
            *outside = 1;
            return;
        }
    const int64_t work = depth.window * height.window * width.window * channels;
    parallel_for(samples * depth.out * height.out * width.out, grain_for(work), [&](int64_t begin, int64_t end) {
        std::vector<A> value_of(static_cast<size_t>(channels)), candidate_of(value_of);
        std::vector<Place> place_of(static_cast<size_t>(channels)), origin_of(place_of), chosen_of(place_of);
        A *__restrict value = value_of.data(), *__restrict candidate = candidate_of.data();
        Place *__restrict place = place_of.data(), *__restrict origin = origin_of.data();
        Place* __restrict chosen = chosen_of.data();
        const Place high = static_cast<Place>(height.in), wide = static_cast<Place>(width.in);
        const Place step = static_cast<Place>(channels);
        for (int64_t task = begin; task < end; ++task) {
            const int64_t o = task % width.out, r = task / width.out % height.out;
            const int64_t z = task / width.out / height.out % depth.out, n = task / width.out / height.out / depth.out;
            const int32_t* __restrict at_z = starts[0].data() + (n * depth.out + z) * channels;
            const int32_t* __restrict at_r = starts[1].data() + (n * height.out + r) * channels;
            const int32_t* __restrict at_o = starts[2].data() + (n * width.out + o) * channels;
            const T* from = static_cast<const T*>(x) + n * depth.in * height.in * width.in * channels;
            NHWC_INDEPENDENT
            for (Place j = 0; j < step; ++j) {
                place[j] = (static_cast<Place>(at_z[j]) * high + at_r[j]) * wide + at_o[j];
                origin[j] = place[j] * step + j;
                chosen[j] = 0;
            }
            for (Place j = 0; j < step; ++j) value[j] = load(from + origin[j]);
            for (int64_t dz = 0; dz < depth.window; ++dz)
                for (int64_t dr = 0; dr < height.window; ++dr)
                    for (int64_t dc = 0; dc < width.window; ++dc) {
                        const Place away = static_cast<Place>((dz * height.in + dr) * width.in + dc);
                        if (away == 0) continue;
                        const T* __restrict moved = from + away * channels;
                        // fetched first: the choice below then is a vector's, without branches
                        NHWC_INDEPENDENT
                        for (Place j = 0; j < step; ++j) candidate[j] = load(moved + origin[j]);
                        NHWC_INDEPENDENT
                        for (Place j = 0; j < step; ++j) {
                                            const bool better = (candidate[j] > value[j]) | (candidate[j] != candidate[j]);
                            value[j] = better ? candidate[j] : value[j];
                            chosen[j] = better ? away : chosen[j];
                        }
                    }
            T* __restrict out = static_cast<T*>(y) + task * channels;
            int64_t* __restrict index = indices + task * channels;
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < channels; ++j) store(out + j, value[j]);
            NHWC_INDEPENDENT
            for (int64_t j = 0; j < channels; ++j) index[j] = place[j] + chosen[j];
        }
    });
}

}  // namespace
}  // namespace nhwc

// axes: in, out, window and number of the random sample for depth, height and width. Sets *outside where a random number
// puts a window outside the input; y and indices are then unwritten.
NHWC_EXPORT(pool_fractional)(int dtype, const void* x, const void* random, void* y, int64_t* indices, int64_t* outside,
                             const int64_t* axes, int64_t samples, int64_t channels, int64_t per_channel) {
    const auto axis = [axes](int k) { return nhwc::Axis{axes[4 * k], axes[4 * k + 1], axes[4 * k + 2], axes[4 * k + 3]}; };
    NHWC_FOR_DTYPE(dtype, nhwc::fractional, x, random, y, indices, outside, axis(0), axis(1), axis(2), samples, channels,
                   per_channel)
}
