// From all lanes of a vector to one number, and rows that end within a vector.
#pragma once

#include <limits>
#include <utility>

#include "functions.h"
#include "lanes.h"
#include "tasks.h"

namespace nhwc {
namespace engine {

template <int BY, int... I>
inline vf rotated(vf v, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(v, v, ((I + BY) % LANES)...);
}

// Every lane holds `both` of all lanes, which needs no order.
template <int BY = LANES / 2, class Both>
inline vf across(vf v, const Both& both) {
    const vf folded = both(v, rotated<BY>(v, std::make_integer_sequence<int, LANES>{}));
    if constexpr (BY > 1)
        return across<BY / 2>(folded, both);
    else
        return folded;
}

inline float sum_of(vf v) {
    return across(v, [](vf a, vf b) { return a + b; })[0];
}
// A NaN may be passed over.
inline float greatest_of(vf v) {
    return across(v, [](vf a, vf b) { return at_least(a, b); })[0];
}

template <int... I>
inline vi numbers(std::integer_sequence<int, I...>) {
    return vi{I...};
}

// The first `count` lanes of v, and `otherwise` in the rest.
inline vf only(vf v, int64_t count, float otherwise) {
    return numbers(std::make_integer_sequence<int, LANES>{}) < static_cast<int32_t>(count) ? v : splat(otherwise);
}

// body(row of x, row of y) over all rows in parallel; x and y are of the same size.
template <class Body>
inline void for_each_row(const Context& context, const Rows& x, const Rows& y, int64_t floats_per_task,
                         const Body& body) {
    const int64_t rows = y.n * y.d * y.h * y.w;
    if (rows == 0 || y.c == 0) return;
    const Parts groups(rows, std::max<int64_t>(1, floats_per_task / y.c), 1);
    float *from = at(context, x), *to = at(context, y);
    tasks(context, groups.count, [&](int64_t group, int64_t) {
        for (int64_t row = groups.begin(group), end = groups.end(group, rows); row < end;) {
            const int64_t h = row / y.w % y.h, d = row / y.w / y.h % y.d, n = row / y.w / y.h / y.d;
            const int64_t first = row % y.w, stop = std::min(end, row - first + y.w);
            const float* in = row_of(x, from, n, d, h) + first * x.sw;
            float* out = row_of(y, to, n, d, h) + first * y.sw;
            for (; row < stop; ++row, in += x.sw, out += y.sw) body(in, out);
        }
    });
}

}  // namespace engine
}  // namespace nhwc
