// standstill: the blocks on the card wait for one that cannot start before one of them ends
#pragma once
#include <unordered_map>
#include <unordered_set>

#include "block.h"

namespace sim {

// A block that comes again and again to states that it was in before waits for others. Where every resident block does,
// none ever ends: what is in memory changes as little as what they hold in their registers.
class Standstill {
 public:
    // After a turn of a block that is not done: whether it and all others of so many now repeat themselves.
    bool repeats(const Block& block, u64 resident);
    void end();  // a block is done: the others may go on

 private:
    struct Seen {
        std::unordered_set<u64> states;
        u32 again = 0;  // turns in a row that ended in a state that was seen before
    };
    std::unordered_map<const Block*, Seen> seen_;
};

Finding standstill(const Block& block, u64 not_started);

}  // namespace sim
