// Chains of pointwise operations over inputs that broadcast: an interpreter over blocks that stay in the first cache.
//
// The tensors arrive as rows of the output, however many dimensions they had; whatever lies side by side in all of them
// has become one dimension. A block is a part of one row, or several whole rows that are short.
#include "arithmetic.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

constexpr int64_t MOST_INPUTS = 8;
constexpr int64_t MOST_INSTRUCTIONS = 24;
// Floats of a block, and from one block's memory to the next: no multiple of a page, or loads would wait for the stores
// of another block.
constexpr int64_t BLOCK = 1024;
constexpr int64_t PITCH = 1360;
// What is worth a task.
constexpr int64_t FLOATS_PER_TASK = 1 << 14;

struct Elementwise {
    Rows y;
    int64_t inputs, instructions, registers;
    Rows input[MOST_INPUTS];
    Instruction code[MOST_INSTRUCTIONS];
};

// Where a tensor's part of a picture begins, and its steps between rows and channels.
struct Strip {
    float* first;
    int64_t row_step, step;
};

Strip strip_of(const Rows& rows, float* base, int64_t outer, int64_t channel) {
    const int64_t h = outer % rows.h, d = outer / rows.h % rows.d, n = outer / rows.h / rows.d;
    return {base + n * rows.sn + d * rows.sd + h * rows.sh + channel * rows.sc, rows.sw, rows.sc};
}

// A block of `rows` by `width` floats, whether as it lies or through `buffer`.
inline bool is_dense(const Strip& strip, int64_t rows, int64_t width) {
    return (strip.step == 1 || width == 1) && (rows == 1 || strip.row_step == width);
}

void gather(const Strip& strip, int64_t row, int64_t rows, int64_t width, float* buffer) {
    for (int64_t r = 0; r < rows; ++r, buffer += width) {
        const float* from = strip.first + (row + r) * strip.row_step;
        if (strip.step == 1)
            for_vectors(width, [&](const auto& get, const auto& put) { put(buffer, get(from)); });
        else if (strip.step == 0)
            std::fill(buffer, buffer + width, *from);
        else
            for (int64_t c = 0; c < width; ++c) buffer[c] = from[c * strip.step];
    }
}

void scatter(const Strip& strip, int64_t row, int64_t rows, int64_t width, const float* buffer) {
    for (int64_t r = 0; r < rows; ++r, buffer += width) {
        float* to = strip.first + (row + r) * strip.row_step;
        if (strip.step == 1)
            for_vectors(width, [&](const auto& get, const auto& put) { put(to, get(buffer)); });
        else
            for (int64_t c = 0; c < width; ++c) to[c * strip.step] = buffer[c];
    }
}

struct Machine {
    const Elementwise& p;
    float* const* bases;  // of the inputs, then of y
    float* memory;        // of the inputs' copies, the registers and the result

    float* block(int64_t index) const { return memory + index * PITCH; }

    // Rows [row, stop) of one picture, channels [channel, channel + width).
    void run(int64_t outer, int64_t row, int64_t stop, int64_t channel, int64_t width) const {
        Strip in[MOST_INPUTS];
        const float* operand[MOST_INPUTS + MOST_INSTRUCTIONS];
        for (int64_t i = 0; i < p.inputs; ++i) in[i] = strip_of(p.input[i], bases[i], outer, channel);
        for (int64_t r = 0; r < p.registers; ++r) operand[p.inputs + r] = block(p.inputs + r);
        const Strip out = strip_of(p.y, bases[p.inputs], outer, channel);
        const int64_t at_once = std::max<int64_t>(1, width == p.y.c ? BLOCK / width : 1);
        for (bool is_first = true; row < stop; row += at_once, is_first = false) {
            const int64_t rows = std::min(at_once, stop - row);
            for (int64_t i = 0; i < p.inputs; ++i) {
                if (is_dense(in[i], rows, width)) {
                    operand[i] = in[i].first + row * in[i].row_step;
                } else if (is_first || in[i].row_step != 0) {
                    gather(in[i], row, rows, width, block(i));
                    operand[i] = block(i);
                }
            }
            const bool direct = is_dense(out, rows, width);
            float* result = direct ? out.first + row * out.row_step : block(p.inputs + p.registers);
            for (int64_t k = 0; k < p.instructions; ++k) {
                const Instruction& each = p.code[k];
                if (each.is_invariant && !is_first) continue;
                float* to = each.to < 0 ? result : block(p.inputs + each.to);
                execute(each, {operand[each.a], operand[each.b], operand[each.c], to, rows * width});
            }
            if (!direct) scatter(out, row, rows, width, result);
        }
    }
};

}  // namespace

NHWC_STEP(elementwise, Elementwise) {
    const Elementwise& p = parameters;
    const int64_t rows = p.y.n * p.y.d * p.y.h * p.y.w, strips = (p.y.c + BLOCK - 1) / BLOCK;
    if (rows == 0 || p.y.c == 0) return;
    float* bases[MOST_INPUTS + 1];
    for (int64_t i = 0; i < p.inputs; ++i) bases[i] = at(context, p.input[i]);
    bases[p.inputs] = at(context, p.y);
    const int64_t block_width = std::min(p.y.c, BLOCK);
    const int64_t task_rows = std::min(rows, (FLOATS_PER_TASK + block_width - 1) / block_width);
    const int64_t task_strips = std::min(strips, std::max<int64_t>(1, FLOATS_PER_TASK / (task_rows * block_width)));
    const int64_t high = (rows + task_rows - 1) / task_rows, wide = (strips + task_strips - 1) / task_strips;
    const int64_t slot_floats = (p.inputs + p.registers + 1) * PITCH;
    tasks(context, high * wide, [&](int64_t task, int64_t slot) {
        const Machine machine{p, bases, reinterpret_cast<float*>(context.scratch) + slot * slot_floats};
        const int64_t first = task / wide * task_rows, last = std::min(rows, first + task_rows);
        const int64_t left = task % wide * task_strips, right = std::min(strips, left + task_strips);
        for (int64_t strip = left; strip < right; ++strip)
            for (int64_t row = first; row < last;) {
                const int64_t outer = row / p.y.w, stop = std::min(last, (outer + 1) * p.y.w);
                const int64_t channel = strip * BLOCK;
                machine.run(outer, row - outer * p.y.w, stop - outer * p.y.w, channel,
                            std::min(BLOCK, p.y.c - channel));
                row = stop;
            }
    });
}

}  // namespace engine
}  // namespace nhwc
