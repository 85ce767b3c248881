// builtins: functions of kernels that no PTX has: printf, assert, malloc, free
#pragma once
#include "warp.h"

namespace sim {

void call_builtin(Warp& warp, const CallSite& site, Mask mask);

}  // namespace sim
