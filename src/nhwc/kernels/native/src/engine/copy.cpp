// The values of one tensor in the strides of another: slices, formats, shuffles, and what surrounds them as padding.
#include "../matrix.h"
#include "arithmetic.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int MOST_DIMENSIONS = 6;
constexpr int64_t MOST_BOXES = 7;
// What is worth a task, and the longest rows of a tile.
constexpr int64_t FLOATS_PER_TASK = 1 << 14;
constexpr int64_t TILE_ROWS = 1024;

// Elements that are copied, or filled with the value: dimensions in the order of the target's memory. `across` is the
// dimension along which the source is dense where it is not the last, for a transposition; else -1.
struct Box {
    int64_t is_fill, across, from_offset, to_offset;
    int64_t size[MOST_DIMENSIONS], from[MOST_DIMENSIONS], to[MOST_DIMENSIONS];
};

struct Copies {
    Ref x, y;
    double value;
    int64_t boxes;
    Box box[MOST_BOXES];
};

constexpr int LAST = MOST_DIMENSIONS - 1;

struct Places {
    const float* from;
    float* to;
};

// The place of index `at` in the dimensions [0, end) but `without`.
Places place(const Box& box, Places first, int64_t at, int end, int64_t without) {
    for (int d = end - 1; d >= 0; --d) {
        if (d == without) continue;
        const int64_t own = at % box.size[d];
        at /= box.size[d];
        first.from += own * box.from[d];
        first.to += own * box.to[d];
    }
    return first;
}

int64_t count_of(const Box& box, int end, int64_t without) {
    int64_t count = 1;
    for (int d = 0; d < end; ++d)
        if (d != without) count *= box.size[d];
    return count;
}

struct Pieces {
    int64_t size, count;
    Pieces(int64_t whole, int64_t wanted)
        : size(std::max<int64_t>(1, std::min(whole, wanted))), count((whole + size - 1) / size) {}
    int64_t first(int64_t piece) const { return piece * size; }
    int64_t width(int64_t piece, int64_t whole) const { return std::min(size, whole - first(piece)); }
};

// Rows of the last dimension, several of them or a part of one to a task.
struct RowTasks {
    explicit RowTasks(const Box& box)
        : columns(box.size[LAST], FLOATS_PER_TASK),
          rows(count_of(box, LAST, -1), FLOATS_PER_TASK / columns.size),
          count(rows.count * columns.count) {}

    void run(const Box& box, Places first, float value, int64_t task) const {
        const int64_t column = columns.first(task % columns.count), all = count_of(box, LAST, -1);
        const int64_t width = columns.width(task % columns.count, box.size[LAST]);
        const int64_t begin = rows.first(task / columns.count), end = begin + rows.width(task / columns.count, all);
        for (int64_t row = begin; row < end;) {
            const int64_t high = box.size[LAST - 1], stop = std::min(end, (row / high + 1) * high);
            Places at = place(box, first, row, LAST, -1);
            at.from += column * box.from[LAST];
            at.to += column * box.to[LAST];
            for (; row < stop; ++row, at.from += box.from[LAST - 1], at.to += box.to[LAST - 1])
                one(box, at, value, width);
        }
    }

    Pieces columns, rows;
    int64_t count;

  private:
    static void one(const Box& box, Places at, float value, int64_t width) {
        const bool is_dense = box.to[LAST] == 1;
        if (box.is_fill && is_dense)
            for_vectors(width, [&](const auto&, const auto& put) { put(at.to, splat(value)); });
        else if (box.is_fill)
            for (int64_t j = 0; j < width; ++j) at.to[j * box.to[LAST]] = value;
        else if (is_dense && box.from[LAST] == 1)
            for_vectors(width, [&](const auto& get, const auto& put) { put(at.to, get(at.from)); });
        else
            for (int64_t j = 0; j < width; ++j) at.to[j * box.to[LAST]] = at.from[j * box.from[LAST]];
    }
};

// Tiles of the plane of the last dimension and the one across: to (columns, rows) = from (rows, columns). Small planes
// are taken several at a time.
struct TileTasks {
    explicit TileTasks(const Box& box)
        : along(box.across == LAST - 1 ? LAST - 2 : LAST - 1),
          rows(box.size[LAST], TILE_ROWS),
          columns(box.size[box.across], std::max<int64_t>(64, FLOATS_PER_TASK / rows.size / 64 * 64)),
          planes(count_of(box, LAST, box.across),
                 rows.count * columns.count > 1 ? 1 : FLOATS_PER_TASK / (rows.size * columns.size)),
          count(planes.count * rows.count * columns.count) {}

    void run(const Box& box, Places first, int64_t task) const {
        const int64_t row = task % rows.count, column = task / rows.count % columns.count;
        const int64_t group = task / rows.count / columns.count, all = count_of(box, LAST, box.across);
        const int64_t high = box.size[along], last = planes.first(group) + planes.width(group, all);
        for (int64_t plane = planes.first(group); plane < last;) {
            const int64_t stop = std::min(last, (plane / high + 1) * high);
            Places at = place(box, first, plane, LAST, box.across);
            at.from += rows.first(row) * box.from[LAST] + columns.first(column);
            at.to += rows.first(row) + columns.first(column) * box.to[box.across];
            for (; plane < stop; ++plane, at.from += box.from[along], at.to += box.to[along])
                turn({reinterpret_cast<const uint32_t*>(at.from), box.from[LAST], reinterpret_cast<uint32_t*>(at.to),
                      box.to[box.across], rows.width(row, box.size[LAST]),
                      columns.width(column, box.size[box.across])});
        }
    }

    int along;
    Pieces rows, columns, planes;
    int64_t count;

  private:
    static void turn(const Matrix<uint32_t>& m) {
        if (m.rows == m.to_stride && is_few(m.rows))
            few(m.rows, [&](auto n) { join_few<uint32_t, decltype(n)::kind>(m.from, m.from_stride, m.to, m.columns); });
        else if (m.columns == m.from_stride && is_few(m.columns))
            few(m.columns, [&](auto n) { split_few<uint32_t, decltype(n)::kind>(m.from, m.to, m.to_stride, m.rows); });
        else
            transpose<MOST_LANES, false, false>(m, 0);
    }
    static bool is_few(int64_t count) { return count >= 2 && count <= 4; }
    template <class Body>
    static void few(int64_t count, const Body& body) {
        count == 2 ? body(Known<2>{}) : count == 3 ? body(Known<3>{}) : body(Known<4>{});
    }
};

}  // namespace

NHWC_STEP(copy, Copies) {
    const float* x = at(context, parameters.x);
    float* y = at(context, parameters.y);
    int64_t ends[MOST_BOXES], total = 0;
    for (int64_t b = 0; b < parameters.boxes; ++b) {
        const Box& box = parameters.box[b];
        total += count_of(box, MOST_DIMENSIONS, -1) == 0 ? 0
                 : box.across < 0                        ? RowTasks(box).count
                                                         : TileTasks(box).count;
        ends[b] = total;
    }
    tasks(context, total, [&](int64_t task, int64_t) {
        int64_t b = 0;
        while (task >= ends[b]) ++b;
        const Box& box = parameters.box[b];
        const int64_t own = task - (b == 0 ? 0 : ends[b - 1]);
        const Places first{x + box.from_offset, y + box.to_offset};
        if (box.across < 0)
            RowTasks(box).run(box, first, static_cast<float>(parameters.value), own);
        else
            TileTasks(box).run(box, first, own);
    });
}

}  // namespace engine
}  // namespace nhwc
