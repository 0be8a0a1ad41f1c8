// What a step of the engine's program is: a function and its parameters, which name memory by table entry and offset.
//
// A program is built once and runs on many threads at once: parameters are read only, and every call brings a table of
// its own (arena, scratch, inputs, outputs). The structs are mirrored in nhwc/inference/native.py, field by field; every
// field is 8 bytes wide so that both sides lay them out alike.
#pragma once

#include <cstdint>

namespace nhwc {
namespace engine {

// table[base] + offset, in bytes. Entry 0 is null: its offsets are addresses (weights). base < 0: there is none.
struct Ref {
    int64_t base;
    int64_t offset;
};

// A channels-last tensor of float: element (n, d, h, w, c) lies at n sn + d sd + h sh + w sw + c sc, in elements.
// Images have d == 1. sc is 1 except where a kernel says that it takes any. A slice of a joined buffer has sw > c;
// a stride of 0 repeats, as a gate of one value per picture and channel does.
struct Rows {
    Ref at;
    int64_t n, d, h, w, c;
    int64_t sn, sd, sh, sw, sc;
};

struct Context {
    char* const* table;
    int64_t threads;   // at most so many slots run at once
    char* scratch;     // working memory of the step, aligned to 64 bytes; as much as the step asked for
};

inline float* at(const Context& context, const Ref& ref) {
    return reinterpret_cast<float*>(context.table[ref.base] + ref.offset);
}
inline float* at(const Context& context, const Rows& rows) { return at(context, rows.at); }

using run_t = void (*)(const void* parameters, const Context* context);

struct Step {
    run_t run;
    const void* parameters;
};

}  // namespace engine
}  // namespace nhwc

// A step's function as the library exports it: NHWC_STEP(conv_direct, Conv) { ... parameters, context ... }
#define NHWC_STEP(NAME, PARAMETERS)                                                                                \
    static void step_##NAME(const PARAMETERS& parameters, const ::nhwc::engine::Context& context);                 \
    extern "C" __attribute__((visibility("default"))) void nhwc_step_##NAME(const void* parameters,                \
                                                                            const ::nhwc::engine::Context* context) { \
        step_##NAME(*static_cast<const PARAMETERS*>(parameters), *context);                                        \
    }                                                                                                              \
    static void step_##NAME(const PARAMETERS& parameters, const ::nhwc::engine::Context& context)
