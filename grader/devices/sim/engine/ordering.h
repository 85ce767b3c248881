// ordering: what fences and strong accesses order inside a block, beside its
// barriers
//
// A warp that fences and then writes a flag strongly releases what it knows;
// one that reads the flag strongly and then fences acquires it. So data handed
// over through locks and flags are no race. Kept only for kernels that fence.
#pragma once
#include <unordered_map>

#include "program.h"

namespace sim {

struct Warp;

struct Knowledge {
    u32 clock[LANES] = {};  // of each warp

    void join(const Knowledge& other) {
        for (int i = 0; i < LANES; ++i) clock[i] = clock[i] > other.clock[i] ? clock[i] : other.clock[i];
    }
};

class Ordering {
 public:
    void forget();
    void fence(Warp& warp);
    void strong(Warp& warp, Mask mask, u8* const* at, Access access);
    // Whether a warp has read, without a fence since, that another came to that
    // clock: enough for global memory, whose findings err on the quiet side.
    bool read(const Warp& warp, u32 other, u32 clock) const;

 private:
    Knowledge released_[LANES], pending_[LANES];      // of each warp
    std::unordered_map<const u8*, Knowledge> flags_;  // what the last writers of a place released
};

}  // namespace sim
