// kata.cuh: the one header every kata includes
#pragma once
#include <cuda_runtime.h>

// A launcher is plain C, so that Python finds it under the kata's own name.
#define KATA_EXPORT extern "C" __attribute__((visibility("default")))
