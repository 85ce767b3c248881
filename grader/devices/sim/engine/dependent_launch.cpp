// dependent_launch: griddepcontrol, of a launch that may begin before the one before it has ended
//
// Launches run one after the other here; what a thread does before it has waited is checked against what the launch
// before wrote (check_access.cpp). PTX ISA 9.7.13.13, "griddepcontrol".
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

void nothing(Warp&, const Instruction&, Mask) {}

void wait(Warp& warp, const Instruction&, Mask mask) {
    warp.awaited |= mask;
}

}  // namespace

void dependent_launch_entries(Table& t) {
    t.add("griddepcontrol.launch_dependents", {nothing, {}}, lower_nothing);
    t.add("griddepcontrol.wait", {wait, {}}, lower_nothing);
}

}  // namespace sim
