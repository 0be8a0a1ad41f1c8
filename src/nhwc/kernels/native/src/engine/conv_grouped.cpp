// Grouped convolution whose groups are a part of a vector, 2 to 16 channels in and as many out.
//
// As a matrix product most lanes would multiply zeros. Here lane l of a vector holds input channel l all along: for
// each rotation r of the group there is a sum of x[l] w_r[l], where w_r[l] is the weight from channel l to the one that
// lies r on in its group. No lane is idle and nothing is permuted until the end: out = s_0 + turn(s_1 + turn(s_2 +
// ...)), where turn moves each lane one on within its group.
#include "conv_blocks.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

// Rotations that are summed at once, and pixels beside each other: sums fill three quarters of the registers.
constexpr int at_once(int size) { return std::min(size, REGISTERS == 32 ? 8 : 4); }
constexpr int pixels_of(int size) { return REGISTERS * 3 / 4 / at_once(size); }

// Loaded once: GCC would read it from memory again for each multiplication, which costs a tenth.
inline vf in_register(vf v) {
#if defined(__SSE2__)
    asm("" : "+v"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
    return v;
}

template <int SIZE>
vf turn(vf v) {
    vi from{};
#pragma GCC unroll 16
    for (int lane = 0; lane < LANES; ++lane) from[lane] = lane - lane % SIZE + (lane % SIZE + SIZE - 1) % SIZE;
#if defined(__clang__)
    vf turned;
    for (int lane = 0; lane < LANES; ++lane) turned[lane] = v[from[lane]];
    return turned;
#else
    return __builtin_shuffle(v, from);
#endif
}

struct Grouped {
    const float* const* rows;
    int64_t step, taps;
    int64_t channel;      // of the vector's first lane
    int64_t count;        // lanes that are channels
    const float* weight;  // [tap][rotation][lane]
    const float* bias;
    float* const* out;
    Finish finish;
};

// Sums of rotations [FIRST, FIRST + at_once) for PIXELS pixels, turned into `carried`, which holds those of later ones.
template <int SIZE, int PIXELS, int FIRST, bool WHOLE>
inline void rotations(const Grouped& g, vf (&carried)[PIXELS]) {
    constexpr int ROTATIONS = at_once(SIZE);
    vf sums[PIXELS][ROTATIONS];
#pragma GCC unroll 16
    for (int i = 0; i < PIXELS; ++i)
#pragma GCC unroll 8
        for (int r = 0; r < ROTATIONS; ++r) sums[i][r] = vf{};
    const float* weight = g.weight + FIRST * LANES;
    const float* const* table = g.rows;
#pragma GCC unroll 1
    for (int64_t tap = 0; tap < g.taps; ++tap, table += g.step, weight += SIZE * LANES) {
        vf x[PIXELS];
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; ++i) {
            const float* from = table[i] + g.channel;
            x[i] = WHOLE ? load(from) : load_part(from, g.count);
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROTATIONS; ++r) {
            const vf w = in_register(load(weight + r * LANES));
#pragma GCC unroll 16
            for (int i = 0; i < PIXELS; ++i) sums[i][r] += x[i] * w;
        }
    }
#pragma GCC unroll 8
    for (int r = ROTATIONS - 1; r >= 0; --r)
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; ++i)
            carried[i] = FIRST + r == SIZE - 1 ? sums[i][r] : sums[i][r] + turn<SIZE>(carried[i]);
}

template <int SIZE, int PIXELS, bool WHOLE>
__attribute__((noinline)) void grouped_tile(const Grouped& g) {
    // pixels lie apart, so nothing else fetches the next vector's: what its last tap reads, and where it goes
    const float* const* fresh = g.rows + (g.taps - 1) * g.step;
#pragma GCC unroll 16
    for (int i = 0; i < PIXELS; ++i) {
        __builtin_prefetch(fresh[i] + g.channel + LANES);
        __builtin_prefetch(g.out[i] + g.channel + LANES, 1);
    }
    vf sums[PIXELS] = {};
    if constexpr (at_once(SIZE) * 4 <= SIZE) {
        rotations<SIZE, PIXELS, at_once(SIZE) * 3, WHOLE>(g, sums);
        rotations<SIZE, PIXELS, at_once(SIZE) * 2, WHOLE>(g, sums);
    }
    if constexpr (at_once(SIZE) * 2 <= SIZE) rotations<SIZE, PIXELS, at_once(SIZE), WHOLE>(g, sums);
    rotations<SIZE, PIXELS, 0, WHOLE>(g, sums);
    const Finish& finish = g.finish;
    const vf bias = g.bias == nullptr ? vf{} : load(g.bias + g.channel);
#pragma GCC unroll 16
    for (int i = 0; i < PIXELS; ++i) {
        vf sum = sums[i] + bias, addend{};
        if (finish.addend != nullptr)
            addend = WHOLE ? load(finish.addend[i] + g.channel) : load_part(finish.addend[i] + g.channel, g.count);
        if (!finish.addend_last) sum += addend;
        sum = bounded(sum, finish.bounds);
        if (finish.addend_last) sum += addend;
        if (WHOLE)
            store(g.out[i] + g.channel, sum);
        else
            store_part(g.out[i] + g.channel, sum, g.count);
    }
}

template <int SIZE, int PIXELS>
void grouped_rows(Grouped g, int64_t rows) {
    for (; rows >= PIXELS; rows -= PIXELS) {
        if (g.count == LANES)
            grouped_tile<SIZE, PIXELS, true>(g);
        else
            grouped_tile<SIZE, PIXELS, false>(g);
        g.rows += PIXELS;
        g.out += PIXELS;
        if (g.finish.addend != nullptr) g.finish.addend += PIXELS;
    }
    if constexpr (PIXELS > 1)
        if (rows > 0) grouped_rows<SIZE, (PIXELS + 1) / 2>(g, rows);
}

void grouped_rows(int64_t size, const Grouped& g, int64_t rows) {
    if (size == 2) return grouped_rows<2, pixels_of(2)>(g, rows);
    if (size == 4) return grouped_rows<4, pixels_of(4)>(g, rows);
    if constexpr (LANES >= 8)
        if (size == 8) return grouped_rows<8, pixels_of(8)>(g, rows);
    if constexpr (LANES >= 16)
        if (size == 16) return grouped_rows<16, pixels_of(16)>(g, rows);
}

}  // namespace

// Groups of 2, 4, 8 or 16 channels, no more than lanes, that have as many outputs. weight:
// [vector][tap][rotation][lane]; a task is about choice.block_rows pixels by choice.block_panels vectors.
NHWC_STEP(conv_grouped, Conv) {
    const Conv& conv = parameters;
    const Choice& choice = choice_of(conv);
    const Axis axes[3] = {axis_of(conv, 0), axis_of(conv, 1), axis_of(conv, 2)};
    const int64_t taps = axes[0].taps * axes[1].taps * axes[2].taps, size = conv.x.c / conv.groups;
    const int64_t vectors = blocks_of(conv.y.c, LANES), vector_blocks = blocks_of(vectors, choice.block_panels);
    const int64_t all = pixels(conv.y), row_blocks = blocks_of(all, choice.block_rows), step = choice.block_rows;
    const float *x = at(context, conv.x), *weight = at(context, conv.weight);
    const float* bias = conv.bias.base < 0 ? nullptr : at(context, conv.bias);

    tasks(context, row_blocks * vector_blocks, [&](int64_t task, int64_t slot) {
        const int64_t block = task / vector_blocks, part = task % vector_blocks;
        const int64_t begin = all * block / row_blocks, end = all * (block + 1) / row_blocks;
        const Tables tables(context.scratch + slot * Tables::bytes(taps, step), taps, step);
        tap_pointers(conv.x, x, weight + choice.zeros, axes, conv.y, begin, end, step, tables.in);
        const Outputs outputs(conv, context, tables, conv.y, conv.epilogue.addend, begin, end);
        const int64_t first = vectors * part / vector_blocks, past = vectors * (part + 1) / vector_blocks;
        for (int64_t vector = first; vector < past; ++vector) {
            const int64_t channel = vector * LANES, count = std::min<int64_t>(LANES, conv.y.c - channel);
            grouped_rows(size,
                         {tables.in, step, taps, channel, count, weight + vector * taps * size * LANES, bias,
                          tables.out, outputs.finish},
                         end - begin);
        }
        outputs.finish_rows(first * LANES, std::min(past * LANES, conv.y.c) - first * LANES);
    });
}

}  // namespace engine
}  // namespace nhwc
