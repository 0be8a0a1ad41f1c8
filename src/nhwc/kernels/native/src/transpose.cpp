// Conversion between the formats: per sample the transposition of a (channels, pixels) matrix, for any element of 1 to
// 8 bytes.
//
// What counts is how memory is read and written. Large targets are streamed past the caches, which saves reading them
// first; lines that are needed soon are fetched ahead, since the runs are too short for the processor to see them coming.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "export.h"
#include "matrix.h"
#include "parallel.h"
#include "vector.h"

namespace nhwc {
namespace {

// Pixels of a task where there are too few channels for blocks.
constexpr int64_t FEW_PIXELS = 4096;

// How a (samples, rows, columns) array is cut: into tiles of some rows and columns, the last of which take the rest.
struct Tiles {
    Tiles(int64_t whole, int64_t wanted) : size(std::min(whole, wanted)), count(whole / size), whole(whole) {}
    int64_t first(int64_t tile) const { return tile * size; }
    int64_t width(int64_t tile) const { return tile == count - 1 ? whole - first(tile) : size; }
    int64_t widest() const { return width(count - 1); }
    int64_t size, count, whole;
};

enum class Way { CACHED, STREAMED, STAGED };

// STREAMED where every line of the target is written by one store or a few in a row; STAGED where the lines do not begin
// with the rows of the target, so that a tile is put together elsewhere first.
template <class T>
Way way_of(const T* to, int64_t to_stride, int64_t rows, int64_t total) {
    constexpr int64_t size = sizeof(T);
    if (!is_streamed(total * size)) return Way::CACHED;
    const bool whole_lines = (to_stride * size) % LINE == 0 && (rows * size) % LINE == 0;
    return whole_lines && reinterpret_cast<uintptr_t>(to) % LINE == 0 ? Way::STREAMED : Way::STAGED;
}

// Tile by tile, in parallel. at(sample, pixel, channel, pixels, channels) is the matrix of one tile.
template <class T, class At>
void for_tiles(int64_t samples, const Tiles& pixels, const Tiles& channels, Way way, bool across, int64_t ahead,
               const At& at) {
    parallel_for(samples * pixels.count * channels.count, grain_for(pixels.size * channels.size),
                 [&](int64_t begin, int64_t end) {
        std::unique_ptr<T[]> stage;
        if (way == Way::STAGED) stage.reset(new T[static_cast<size_t>(pixels.widest() * channels.widest())]);
        for (int64_t task = begin; task < end; ++task) {
            const int64_t c = task % channels.count, p = task / channels.count % pixels.count;
            const int64_t sample = task / (channels.count * pixels.count);
            const Matrix<T> m =
                at(sample, pixels.first(p), channels.first(c), pixels.width(p), channels.width(c));
            if (way == Way::STAGED) {
                transpose<MOST_LANES, false, true, T>({m.from, m.from_stride, stage.get(), m.rows, m.rows, m.columns}, ahead);
                if (m.rows == m.to_stride)
                    stream_out(stage.get(), m.to, m.rows * m.columns);
                else
                    for (int64_t k = 0; k < m.columns; ++k)
                        stream_out(stage.get() + k * m.rows, m.to + k * m.to_stride, m.rows);
            } else if (way == Way::STREAMED) {
                transpose<MOST_LANES, true, true>(m, ahead);
            } else if (across) {
                transpose<MOST_LANES, false, true>(m, ahead);
            } else {
                transpose<MOST_LANES, false, false>(m, ahead);
            }
        }
        if (way != Way::CACHED) finish_streams();
    });
}

// run(first of the planes, first of the rows, pixels) for stretches of one sample's pixels.
template <class Run>
void for_few(int64_t samples, int64_t channels, int64_t pixels, const Run& run) {
    const Tiles tiles(pixels, FEW_PIXELS);
    parallel_for(samples * tiles.count, grain_for(tiles.size * channels), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / tiles.count * channels * pixels, first = tiles.first(task % tiles.count);
            run(sample + first, sample + first * channels, tiles.width(task % tiles.count));
        }
    });
}

template <class T, int CHANNELS>
void few_to_rows(const T* from, T* to, int64_t samples, int64_t pixels) {
    for_few(samples, CHANNELS, pixels, [&](int64_t plane, int64_t row, int64_t count) {
        join_few<T, CHANNELS>(from + plane, pixels, to + row, count);
    });
}
template <class T, int CHANNELS>
void few_from_rows(const T* from, T* to, int64_t samples, int64_t pixels) {
    for_few(samples, CHANNELS, pixels, [&](int64_t plane, int64_t row, int64_t count) {
        split_few<T, CHANNELS>(from + row, to + plane, pixels, count);
    });
}

// One channel: both formats are the same.
template <class T>
void copy(const T* from, T* to, int64_t samples, int64_t pixels) {
    for_few(samples, 1, pixels, [&](int64_t plane, int64_t row, int64_t count) {
        std::memcpy(to + row, from + plane, static_cast<size_t>(count) * sizeof(T));
    });
}

template <class T>
void to_rows(const void* source, void* target, int64_t samples, int64_t channels, int64_t pixels, int64_t step) {
    constexpr int64_t size = sizeof(T);
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    if (channels == step) {
        if (channels == 1) return copy(from, to, samples, pixels);
        if (channels == 2) return few_to_rows<T, 2>(from, to, samples, pixels);
        if (channels == 3) return few_to_rows<T, 3>(from, to, samples, pixels);
        if (channels == 4) return few_to_rows<T, 4>(from, to, samples, pixels);
    }
    const Way way = way_of(to, step, channels, samples * channels * pixels);
    // long runs of few channels are read best, and streamed lines may be written in any order
    const Tiles wide(channels, (way == Way::STREAMED ? 128 : 4096) / size);
    const int64_t budget = way == Way::CACHED ? 1 << 16 : 1 << 18;
    const Tiles high(pixels, std::max<int64_t>(64, budget / size / wide.size / 64 * 64));
    for_tiles<T>(samples, high, wide, way, false, way == Way::CACHED ? 0 : LINE / size,
                 [&](int64_t n, int64_t p, int64_t c, int64_t count, int64_t width) {
                     return Matrix<T>{from + (n * channels + c) * pixels + p, pixels,
                                      to + (n * pixels + p) * step + c, step, width, count};
                 });
}

template <class T>
void from_rows(const void* source, void* target, int64_t samples, int64_t channels, int64_t pixels) {
    constexpr int64_t size = sizeof(T);
    const T* from = static_cast<const T*>(source);
    T* to = static_cast<T*>(target);
    if (channels == 1) return copy(from, to, samples, pixels);
    if (channels == 2) return few_from_rows<T, 2>(from, to, samples, pixels);
    if (channels == 3) return few_from_rows<T, 3>(from, to, samples, pixels);
    if (channels == 4) return few_from_rows<T, 4>(from, to, samples, pixels);
    const Way way = way_of(to, pixels, pixels, samples * channels * pixels);
    const Tiles wide(channels, (way == Way::STREAMED ? 4096 : 1024) / size);
    const int64_t budget = way == Way::CACHED ? 1 << 16 : 1 << 18;
    const Tiles high(pixels, way == Way::STREAMED ? 64 : std::max<int64_t>(64, budget / size / wide.size / 64 * 64));
    // the same channels of the pixels to come, or the next line
    const int64_t ahead = way == Way::STREAMED ? high.size * channels : LINE / size;
    for_tiles<T>(samples, high, wide, way, channels * size >= 1024, ahead,
                 [&](int64_t n, int64_t p, int64_t c, int64_t count, int64_t width) {
                     return Matrix<T>{from + (n * pixels + p) * channels + c, channels,
                                      to + (n * channels + c) * pixels + p, pixels, count, width};
                 });
}

}  // namespace
}  // namespace nhwc

// (samples, channels, pixels) to (samples, pixels, channels), elements of `bytes` bytes; pixels of the target lie
// `step` elements apart, so that it may be some channels of a wider tensor.
NHWC_EXPORT(to_rows)(int bytes, const void* from, void* to, int64_t samples, int64_t channels, int64_t pixels,
                     int64_t step){NHWC_FOR_BYTES(bytes, nhwc::to_rows, from, to, samples, channels, pixels, step)}

// (samples, pixels, channels) to (samples, channels, pixels).
NHWC_EXPORT(from_rows)(int bytes, const void* from, void* to, int64_t samples, int64_t channels, int64_t pixels) {
    NHWC_FOR_BYTES(bytes, nhwc::from_rows, from, to, samples, channels, pixels)
}
