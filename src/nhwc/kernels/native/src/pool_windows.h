// The windows of a pooling, per dimension, as Python lays them out in one array of int64 (pool_windows.py).
#pragma once

#include <cstdint>

namespace nhwc {

// Output o averages or compares the inputs [start[o], end[o]); input i lies in the windows of outputs [first[i], last[i]).
// The divisor of a window is the product of those of its dimensions. A 2-D pooling has a depth of one.
struct Dimension {
    int64_t in, out;
    const int64_t *start, *end, *divisor, *first, *last;
};

struct Windows {
    Dimension depth, height, width;

    explicit Windows(const int64_t* table) {
        for (Dimension* each : {&depth, &height, &width}) {
            each->in = *table++;
            each->out = *table++;
            each->start = table, table += each->out;
            each->end = table, table += each->out;
            each->divisor = table, table += each->out;
            each->first = table, table += each->in;
            each->last = table, table += each->in;
        }
    }
};

// A position of the two outer dimensions in one sample: which row a task works on.
struct Row {
    int64_t sample, depth, height;
    Row(int64_t task, int64_t depths, int64_t heights)
        : sample(task / heights / depths), depth(task / heights % depths), height(task % heights) {}
};

}  // namespace nhwc
