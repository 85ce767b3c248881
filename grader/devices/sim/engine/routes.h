// routes: through which instructions an element of an input gets to an output
//
// Of the second of two calls that differ in that element alone (trail.h), each value in a register or in memory that is
// not the first call's is a node: an instruction in a lane, and the nodes that its operands come from. What is left of
// the graph behind the value that an output ends with are the ways there. A value that has changed and whose operands
// are not known makes all of it unknown: of products of matrices nothing is told.
#pragma once
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "finding.h"
#include "program.h"

namespace sim {

struct Warp;

class Routes {
 public:
    // One lane's access, of the second call. `changed` has a bit for each byte that is not the first call's.
    struct Moved {
        u32 pc = 0, bytes = 0;
        int lane = 0;
        bool shared = false;
        bool landed = false;  // a copy that was started before
        Access access = Access::read;
        u64 address = 0, changed = 0;
    };
    void begin(bool first);
    void clear();
    void begin_launch(const Program& program);
    // Accesses of an instruction come before its results.
    void access(const Warp& warp, const Moved& moved, const std::string& place);
    void results(const Warp& warp, const Instruction& in, Mask mask);
    // To the bytes of an output that the second call ends with; empty where that is not known.
    std::string json(u64 focus, u32 bytes) const;

    static bool is_told(const Instruction& in);  // whether it has results

 private:
    struct Node {
        u64 launch = 0;
        u32 pc = 0;
        const char* access = "";
        std::string place;
        Site site;
        std::vector<u32> from;
        double paths = 0;  // from the element
        bool used = false;
    };
    struct Load {  // a read of the instruction that runs, and the node of an atomic update
        Moved moved;
        std::string place;
        u32 node = NONE;
    };
    struct Lanes {
        Mask lanes = 0;
        u32 node[LANES] = {};
    };
    struct OfWarp {
        std::vector<u32> first;  // of the first call: an instruction, its lanes, what each row got
        size_t next = 0;
        std::unordered_map<s32, Lanes> rows;
        std::map<int, Load> loads;
    };
    using Key = std::tuple<u64, u64, u32>;  // of a launch, a block, a warp
    using Address = std::pair<u64, u64>;    // 0 of global memory, or of a block; a byte
    static constexpr u32 NONE = ~0u;

    OfWarp& of(const Warp& warp);
    Address byte(const Warp& warp, bool shared, u64 address) const;
    void add_row(const OfWarp& known, s32 row, int lane, std::vector<u32>& from) const;
    void add_bytes(const Warp& warp, const Moved& moved, u64 chosen, std::vector<u32>& from) const;
    std::vector<u32> stored(const Warp& warp, const OfWarp& known, const Instruction& in, const Moved& moved) const;
    std::vector<u32> operands(const Warp& warp, const OfWarp& known, const Instruction& in, int lane) const;
    u32 loaded(const Warp& warp, OfWarp& known, const Instruction& in, int result, int lane);
    u32 add(
        const Warp& warp, u32 pc, int lane, const char* access, std::string place, std::vector<u32> from, bool root);
    void multiplied(const Warp& warp, const OfWarp& known, const Instruction& in);
    std::vector<char> behind(const std::vector<u32>& ends) const;
    std::vector<u32> ends_at(u64 focus, u32 bytes, bool* reached) const;
    std::vector<std::vector<u32>> sites_of(const std::vector<char>& chosen) const;
    std::set<std::vector<size_t>> ways_to(
        std::vector<u32> ends, bool reached, const std::vector<std::vector<u32>>& sites) const;

    std::map<Key, OfWarp> warps_;
    std::map<Address, u32> memory_;
    std::vector<Node> nodes_;
    u64 launch_ = 0, words_ = 0;
    bool first_ = false;
    bool unknown_ = false;     // of a value that has changed
    bool multiplies_ = false;  // wgmma reads what copies have put into shared memory
};

}  // namespace sim
