// Maximum pooling with indices over channels-last rows; x is (samples, depth, height, width, channels).
//
// Comparing as torch does: the first of equal values in the order of the window, and the last NaN where there is one.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "pool_windows.h"
#include "vector.h"

namespace nhwc {
namespace {

// As wide as the values, so that a comparison's mask fits the places; Python keeps planes below 2**31 pixels.
template <class A>
using place_t = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;

template <class A>
struct Best {
    std::vector<A> value;
    std::vector<place_t<A>> place;
    explicit Best(int64_t channels) : value(static_cast<size_t>(channels)), place(static_cast<size_t>(channels)) {}
};

template <class T, class A>
void take_first(const T* __restrict from, int64_t place, int64_t channels, Best<A>& best) {
    A* __restrict value = best.value.data();
    place_t<A>* __restrict where = best.place.data();
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) value[j] = load(from + j);
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) where[j] = static_cast<place_t<A>>(place);
}

template <class T, class A>
void take_better(const T* __restrict from, int64_t place, int64_t channels, Best<A>& best) {
    A* __restrict value = best.value.data();
    place_t<A>* __restrict where = best.place.data();
    const place_t<A> here = static_cast<place_t<A>>(place);
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) {
        const A candidate = load(from + j);
        const bool better = (candidate > value[j]) | (candidate != candidate);
        value[j] = better ? candidate : value[j];
        where[j] = better ? here : where[j];
    }
}

template <class T, class A>
void put(const Best<A>& best, int64_t channels, T* __restrict out, int64_t* __restrict index) {
    const A* __restrict value = best.value.data();
    const place_t<A>* __restrict where = best.place.data();
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) store(out + j, value[j]);
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < channels; ++j) index[j] = where[j];
}

template <class T>
void maximum(const void* x, void* y, int64_t* indices, const int64_t* table, int64_t samples, int64_t channels) {
    using A = accumulate_t<T>;
    const Windows w(table);
    const Dimension &d = w.depth, &h = w.height, &v = w.width;
    const int64_t window = (d.in / d.out + 1) * (h.in / h.out + 1) * (v.in / v.out + 1);
    const int64_t rows = samples * d.out * h.out * v.out;
    parallel_for(rows, grain_for(window * channels), [&](int64_t begin, int64_t end) {
        Best<A> best(channels);
        for (int64_t task = begin; task < end; ++task) {
            const Row at(task / v.out, d.out, h.out);
            const int64_t o = task % v.out;
            bool first = true;
            for (int64_t z = d.start[at.depth]; z < d.end[at.depth]; ++z)
                for (int64_t r = h.start[at.height]; r < h.end[at.height]; ++r)
                    for (int64_t i = v.start[o]; i < v.end[o]; ++i, first = false) {
                        const int64_t place = (z * h.in + r) * v.in + i;
                        const T* from =
                            static_cast<const T*>(x) + (at.sample * d.in * h.in * v.in + place) * channels;
                        first ? take_first(from, place, channels, best) : take_better(from, place, channels, best);
                    }
            put(best, channels, static_cast<T*>(y) + task * channels, indices + task * channels);
        }
    });
}

}  // namespace
}  // namespace nhwc

NHWC_EXPORT(pool_maximum)(int dtype, const void* x, void* y, int64_t* indices, const int64_t* windows, int64_t samples,
                          int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::maximum, x, y, indices, windows, samples, channels)
}
