// A convolution's parameters: the same for every algorithm, each of which has a step function of its own.
#pragma once

#include "epilogue.h"
#include "step.h"

namespace nhwc {
namespace engine {

// Spatial fields are (depth, height, width); images have depth 1, kernel 1, stride 1, dilation 1, padding 0 there.
// padding is before the first row; what lies after the last follows from y's size. weight is packed as the algorithm
// has it (see its file and nhwc/inference/steps), bias has y.c floats rounded up to the packing.
struct Conv {
    Rows x, y;
    Epilogue epilogue;
    Ref weight, bias;
    int64_t groups;
    int64_t kernel[3], stride[3], dilation[3], padding[3];
    int64_t choice[8];  // the algorithm's own: tile, blocking
};

}  // namespace engine
}  // namespace nhwc
