// What the library exports: plain C functions named nhwc_<name>.
#pragma once

#define NHWC_EXPORT(name) extern "C" __attribute__((visibility("default"))) void nhwc_##name
