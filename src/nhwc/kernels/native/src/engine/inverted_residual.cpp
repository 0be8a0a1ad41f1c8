// An inverted residual: a 1x1 convolution to many channels, a depthwise one over them, a 1x1 convolution to few, block
// by block of output rows, so that the many channels never leave the second-level cache.
//
// Either 1x1 convolution may be left out. Input rows that two blocks share are kept; those that two tasks share are
// computed twice.
#include <algorithm>
#include <cstring>

#include "conv_blocks.h"
#include "depthwise_rows.h"
#include "tasks.h"

namespace nhwc {
namespace engine {
namespace {

// x of the first and y of the last that are there are the step's own; what lies between has shapes only.
// depthwise.choice: pixels, rows in registers, output rows of a block, output rows of a task. The others': Choice, with
// one block of panels.
struct InvertedResidual {
    Conv expand, depthwise, project;  // weight.base < 0: there is none
};

// Rows [from, from + count) of picture n.
Rows part(const Rows& rows, int64_t n, int64_t from, int64_t count) {
    Rows some = rows;
    if (rows.at.base < 0) return some;
    some.at.offset += (n * rows.sn + from * rows.sh) * static_cast<int64_t>(sizeof(float));
    some.n = 1;
    some.h = count;
    return some;
}

// Pixels of a buffer, one after the other, whose channels are those of `like`.
Rows buffered(float* buffer, const Rows& like, int64_t rows) {
    const int64_t pixel = (like.c + 15) / 16 * 16;
    return {{0, reinterpret_cast<int64_t>(buffer)},
            1,
            1,
            rows,
            like.w,
            like.c,
            rows * like.w * pixel,
            0,
            like.w * pixel,
            pixel,
            1};
}

// A 1x1 convolution of some rows, on one thread.
void multiply_rows(const Conv& conv, const Context& context, char* scratch, const Rows& x, const Rows& y,
                   const Rows& addend) {
    const Choice& choice = choice_of(conv);
    const Products products(conv, context, 1, conv.x.c);
    const Tables tables(scratch, 1, choice.block_rows);
    const int64_t all = pixels(y), blocks = blocks_of(all, choice.block_rows);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = all * block / blocks, end = all * (block + 1) / blocks;
        pixel_pointers<const float*>(x, at(context, x), begin, end, tables.in);
        products.run(tables, at(context, conv.weight), y, addend, begin, end, 0);
    }
}

class Fusion {
  public:
    Fusion(const InvertedResidual& step, const Context& context)
        : step_(step),
          context_(context),
          kernels_(depthwise::kernels_of(step.depthwise)),
          expands_(step.expand.weight.base >= 0),
          projects_(step.project.weight.base >= 0),
          block_(step.depthwise.choice[2]) {
        const Conv& deep = step.depthwise;
        table_ = Tables::bytes(1, std::max(choice_of(step.expand).block_rows, choice_of(step.project).block_rows));
        const int64_t most = (block_ - 1) * deep.stride[1] + deep.kernel[1];
        const Rows wide = buffered(nullptr, deep.x, most), narrow = buffered(nullptr, deep.y, block_);
        wide_ = expands_ ? wide.sn : 0;
        slot_ = (table_ + (wide_ + (projects_ ? narrow.sn : 0)) * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
    }

    // Output rows [row, end) of picture n.
    void run(int64_t slot, int64_t n, int64_t row, int64_t end) const {
        const Conv& deep = step_.depthwise;
        char* scratch = context_.scratch + slot * slot_;
        float* wide = reinterpret_cast<float*>(scratch + table_);
        float* narrow = wide + wide_;
        const Rows& last = projects_ ? step_.project.epilogue.addend : deep.epilogue.addend;
        int64_t held_from = 0, held_to = 0;  // rows that `wide` holds
        for (; row < end; row += block_) {
            const int64_t count = std::min(block_, end - row);
            const int64_t first = row * deep.stride[1] - deep.padding[1];
            const int64_t past = first + (count - 1) * deep.stride[1] + deep.kernel[1];
            const int64_t from = std::clamp<int64_t>(first, 0, deep.x.h),
                          to = std::clamp<int64_t>(past, from, deep.x.h);
            Conv conv = deep;
            conv.padding[1] = from - first;
            conv.x = part(deep.x, n, from, to - from);
            if (expands_) {
                conv.x = buffered(wide, deep.x, to - from);
                const int64_t kept = std::max<int64_t>(0, std::min(held_to, to) - from);
                if (kept > 0 && held_from < from)
                    std::memmove(wide, wide + (from - held_from) * conv.x.sh,
                                 static_cast<size_t>(kept * conv.x.sh) * sizeof(float));
                held_from = from;
                held_to = to;
                const Rows fresh = part(conv.x, 0, kept, to - from - kept);
                multiply_rows(step_.expand, context_, scratch, part(step_.expand.x, n, from + kept, fresh.h), fresh,
                              step_.expand.epilogue.addend);
            }
            const Rows addend = part(last, n, row, count);
            conv.y = projects_ ? buffered(narrow, deep.y, count) : part(deep.y, n, row, count);
            if (!projects_) conv.epilogue.addend = addend;
            kernels_.run(depthwise::Job(conv, context_, 0, conv.y.c), 0, 0, count);
            if (projects_)
                multiply_rows(step_.project, context_, scratch, conv.y, part(step_.project.y, n, row, count), addend);
        }
    }

  private:
    const InvertedResidual& step_;
    const Context& context_;
    depthwise::Kernels kernels_;
    bool expands_, projects_;
    int64_t block_, table_, wide_, slot_;
};

}  // namespace

NHWC_STEP(inverted_residual, InvertedResidual) {
    const Conv& deep = parameters.depthwise;
    const Fusion fusion(parameters, context);
    const int64_t rows = deep.choice[3], runs = (deep.y.h + rows - 1) / rows;
    tasks(context, deep.y.n * runs, [&](int64_t task, int64_t slot) {
        const int64_t row = task % runs * rows;
        fusion.run(slot, task / runs, row, std::min(deep.y.h, row + rows));
    });
}

}  // namespace engine
}  // namespace nhwc
