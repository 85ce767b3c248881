// register_pool: the registers that the warps of a block take and give back while they run: setmaxnreg
//
// A block has as many as its threads had when it was launched, by __launch_bounds__ or .maxnreg; without either,
// setmaxnreg does nothing (ptxas says so). PTX ISA 9.7.19.5, "setmaxnreg".
#pragma once
#include <vector>

#include "program.h"

namespace sim {

struct Block;
struct Warp;

class RegisterPool {
 public:
    explicit RegisterPool(Block& block) : block_(block) {}
    void forget();  // a new block begins
    void give_back(Warp& warp, u32 registers);
    // False: there are not enough. The warp stays until others have given theirs back.
    bool take(Warp& warp, u32 registers);
    void deadlock();  // stops where a warp waits

 private:
    void begin();
    [[noreturn]] void stop(Warp& warp, FindingKind kind, const std::string& message);

    Block& block_;
    bool any_ = false;
    u32 each_ = 0;  // registers of a thread at the launch; 0: not known
    u64 free_ = 0;
    std::vector<u32> of_warp_;  // registers of each of its threads
    u32 waiting_ = 0;           // warps
};

}  // namespace sim
