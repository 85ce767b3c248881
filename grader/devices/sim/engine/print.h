// print: printf and assert of kernels
#pragma once
#include "warp.h"

namespace sim {

void call_builtin(Warp& warp, const CallSite& site, Mask mask);

}  // namespace sim
