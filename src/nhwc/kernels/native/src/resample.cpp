// Resampling of channels-last rows: along every dimension an output is a weighted sum over a short list of inputs.
//
// Interpolation and padding are lists of outputs' inputs; their gradients are the same lists transposed.
#include <algorithm>
#include <cstring>
#include <vector>

#include "export.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// One spatial dimension: output o takes weight[k] of input index[k], for k from start[o] to before start[o + 1].
template <class A>
struct Axis {
    int64_t in, out;
    const int64_t *start, *index, *end;
    std::vector<A> weight;
    // From output o on, so many outputs copy inputs that lie side by side; 0 where o is any other sum.
    std::vector<int64_t> run;

    explicit Axis(const int64_t* table) : in(table[0]), out(table[1]), start(table + 2), index(start + out + 1) {
        const int64_t count = start[out];
        weight.resize(static_cast<size_t>(count));
        for (int64_t k = 0; k < count; ++k) {
            double value;
            std::memcpy(&value, index + count + k, sizeof value);
            weight[k] = static_cast<A>(value);
        }
        end = index + 2 * count;
        run.assign(static_cast<size_t>(out), 0);
        for (int64_t o = out - 1; o >= 0; --o) {
            if (taps(o) != 1 || weight[start[o]] != A(1)) continue;
            const bool goes_on = o + 1 < out && run[o + 1] > 0 && index[start[o + 1]] == index[start[o]] + 1;
            run[o] = goes_on ? run[o + 1] + 1 : 1;
        }
    }
    int64_t taps(int64_t o) const { return start[o + 1] - start[o]; }
    int64_t mean_taps() const { return start[out] / out + 1; }
};

// to[j] = the sum of TAPS weighted rows, and of `sum` where there is MORE before them.
template <int TAPS, bool MORE, class From, class To, class A>
inline void weigh(const From* const* rows, const A* weights, const A* sum, To* to, int64_t count) {
    const From *a = rows[0], *b = rows[TAPS > 1 ? 1 : 0], *c = rows[TAPS > 2 ? 2 : 0], *d = rows[TAPS > 3 ? 3 : 0];
    const A p = weights[0], q = weights[TAPS > 1 ? 1 : 0], r = weights[TAPS > 2 ? 2 : 0], s = weights[TAPS > 3 ? 3 : 0];
    NHWC_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) {
        A total = load(a + j) * p;
        if constexpr (TAPS > 1) total += load(b + j) * q;
        if constexpr (TAPS > 2) total += load(c + j) * r;
        if constexpr (TAPS > 3) total += load(d + j) * s;
        store(to + j, MORE ? sum[j] + total : total);
    }
}

template <bool MORE, class From, class To, class A>
inline void weigh_rest(const From* const* rows, const A* weights, int64_t taps, const A* sum, To* to, int64_t count) {
    switch (taps) {
        case 1:
            return weigh<1, MORE>(rows, weights, sum, to, count);
        case 2:
            return weigh<2, MORE>(rows, weights, sum, to, count);
        case 3:
            return weigh<3, MORE>(rows, weights, sum, to, count);
        default:
            return weigh<4, MORE>(rows, weights, sum, to, count);
    }
}

// to[j] = the sum of `taps` weighted rows of `count` values, one or more; scratch holds `count`.
template <class From, class To, class A>
inline void weigh_rows(const From* const* rows, const A* weights, int64_t taps, int64_t count, A* scratch, To* to) {
    if (taps <= 4) return weigh_rest<false>(rows, weights, taps, scratch, to, count);
    weigh<4, false>(rows, weights, scratch, scratch, count);
    int64_t k = 4;
    for (; k + 4 < taps; k += 4) weigh<4, true>(rows + k, weights + k, scratch, scratch, count);
    weigh_rest<true>(rows + k, weights + k, taps - k, scratch, to, count);
}

template <class T>
inline void copy(const T* from, T* to, int64_t count) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
}
inline void copy(const float* __restrict from, bfloat16* __restrict to, int64_t count) {
    for (int64_t j = 0; j < count; ++j) store(to + j, from[j]);
}
inline void copy(const float* __restrict from, _Float16* __restrict to, int64_t count) {
    for (int64_t j = 0; j < count; ++j) store(to + j, from[j]);
}

// What one thread works with.
template <class T, class A>
struct Workspace {
    std::vector<const T*> rows;        // the input rows of an output row
    std::vector<A> weights;            // and theirs
    std::vector<A> line;               // the sum of these
    std::vector<const T*> pixels;      // the pixels of an output pixel: in a row
    std::vector<const A*> line_pixels;  // or in the line
    std::vector<A> sum;                // one pixel
};

// One output row from one row of inputs.
template <class From, class T, class A>
void along_width(const From* from, const Axis<A>& w, int64_t channels, std::vector<const From*>& pixels, A* sum, T* to) {
    for (int64_t o = 0; o < w.out;) {
        T* out = to + o * channels;
        const int64_t first = w.start[o], taps = w.taps(o);
        if (w.run[o] > 0) {
            copy(from + w.index[first] * channels, out, w.run[o] * channels);
            o += w.run[o];
            continue;
        }
        ++o;
        if (taps == 0) {
            std::memset(static_cast<void*>(out), 0, static_cast<size_t>(channels) * sizeof(T));
            continue;
        }
        if (static_cast<int64_t>(pixels.size()) < taps) pixels.resize(static_cast<size_t>(taps));
        for (int64_t k = 0; k < taps; ++k) pixels[k] = from + w.index[first + k] * channels;
        weigh_rows(pixels.data(), w.weight.data() + first, taps, channels, sum, out);
    }
}

template <class T>
void resample(const void* x, void* y, const int64_t* table, int64_t samples, int64_t channels) {
    using A = accumulate_t<T>;
    const Axis<A> d(table), h(d.end), w(h.end);
    const int64_t in_row = w.in * channels, out_row = w.out * channels;
    const int64_t work = in_row * d.mean_taps() * h.mean_taps() + out_row * w.mean_taps();
    parallel_for(samples * d.out * h.out, grain_for(work), [&](int64_t begin, int64_t end) {
        Workspace<T, A> at;
        at.line.resize(static_cast<size_t>(in_row));
        at.sum.resize(static_cast<size_t>(channels));
        for (int64_t task = begin; task < end; ++task) {
            const int64_t row = task % h.out, plane = task / h.out % d.out;
            const T* sample = static_cast<const T*>(x) + task / h.out / d.out * d.in * h.in * in_row;
            at.rows.clear();
            at.weights.clear();
            for (int64_t i = d.start[plane]; i < d.start[plane + 1]; ++i)
                for (int64_t j = h.start[row]; j < h.start[row + 1]; ++j) {
                    at.rows.push_back(sample + (d.index[i] * h.in + h.index[j]) * in_row);
                    at.weights.push_back(d.weight[i] * h.weight[j]);
                }
            T* out = static_cast<T*>(y) + task * out_row;
            const int64_t taps = static_cast<int64_t>(at.rows.size());
            if (taps == 0) {
                std::memset(static_cast<void*>(out), 0, static_cast<size_t>(out_row) * sizeof(T));
            } else if (taps == 1 && at.weights[0] == A(1)) {
                along_width(at.rows[0], w, channels, at.pixels, at.sum.data(), out);
            } else {
                A* line = at.line.data();
                weigh_rows(at.rows.data(), at.weights.data(), taps, in_row, line, line);
                along_width(static_cast<const A*>(line), w, channels, at.line_pixels, at.sum.data(), out);
            }
        }
    });
}

}  // namespace
}  // namespace nhwc

// table: per dimension (depth, height, width) the inputs, the outputs, then start, index and the bits of the weights.
NHWC_EXPORT(resample)(int dtype, const void* x, void* y, const int64_t* table, int64_t samples, int64_t channels) {
    NHWC_FOR_DTYPE(dtype, nhwc::resample, x, y, table, samples, channels)
}
