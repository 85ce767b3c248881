// trail: which accesses of a call move other bytes than those of an earlier call
//
// Two calls of a launcher differ in one element of an input. The first notes what each access to shared and global
// memory reads or writes, warp by warp; of the second, the accesses that move other bytes are kept: they are the places
// that depend on the element. Both run a copy of their program in which accesses stand behind a function that looks at
// them. Any other launch pays nothing.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "finding.h"
#include "program.h"
#include "routes.h"

namespace sim {

struct Warp;

class Trail {
 public:
    enum class Role : u8 { none, first, second };

    // The next call begins. What the block does that last writes to the focus, a device address, is told in full.
    void begin(Role role, u64 focus);
    Role role() const { return role_; }
    void begin_launch(const Program& program, u32 blocks_per_cluster);

    // An access of the warp: addresses in shared memory, or in global memory, and where the bytes are on the host. What
    // is written is there by the time of `settle`.
    void note(
        const Warp& warp, u32 pc, bool shared, Access access, Mask mask, const u64* a, u32 bytes, u8* const* at,
        bool landed = false);
    void settle(const Warp& warp);
    // What the instruction of the warp has computed, after its accesses.
    void results(const Warp& warp, const Instruction& in, Mask mask);
    // A copy that has landed in the block's shared memory.
    void note_landed(const Warp& warp, u32 pc, Mask mask, const u64* a, u32 bytes, u8* const* at);

    std::string json();  // {"steps": in the order of time, "parted", "blind", "route"}

 private:
    struct Event {
        u32 pc = 0, bytes = 0;
        Mask mask = 0;
        bool shared = false, landed = false;
        Access access = Access::read;
        std::vector<u64> addresses;  // of the lanes of the mask
        std::vector<u8> data;
        std::vector<u8*> at;  // until it is settled
    };
    struct Stream {
        std::vector<Event> events, unsettled;
        size_t next = 0;
    };
    struct Step {
        u64 launch, block, time;
        u32 pc, warp;
        Mask lanes;     // of the warp, that move it
        bool together;  // the warp's lanes share what they read, as in ldmatrix
        Site site;      // of the first of them
        std::string access, place, buffer;
        s64 index = 0;
    };
    struct Located {  // nowhere: no buffer of the call
        bool nowhere = false;
        std::string place, buffer;
        s64 index = 0;
    };
    using Key = std::tuple<u64, u64, u32>;  // of a launch, a block, a warp

    Stream& stream_of(const Warp& warp);
    void settle(const Warp& warp, Stream& stream);
    void compare(const Warp& warp, Stream& stream, const Event& event);
    void keep(const Warp& warp, const Event& event, size_t lane_number, int lane, u32 first_byte);
    void tell(const Warp& warp, const Event& event, const Event& before, size_t lane_number, int lane);
    Located located(const Warp& warp, const Event& event, u64 address) const;

    std::mutex mutex_;
    Routes routes_;
    Role role_ = Role::none;
    std::map<Key, Stream> streams_;
    std::map<std::tuple<u64, u64, u32, u32>, std::vector<size_t>> kept_;  // of a launch, a block, a warp, a pc: steps
    std::vector<Step> steps_;
    u64 launch_ = 0, launches_ = 0, time_ = 0, bytes_ = 0;
    u32 focus_bytes_ = 0;
    u64 focus_ = 0, focus_launch_ = 0, focus_block_ = 0;
    bool ready_ = false;   // a first call is known
    bool parted_ = false;  // the two calls do not go the same way, or are too long
    bool blind_ = false;   // not all accesses are seen
};

// The same program, which notes its accesses.
std::shared_ptr<const Program> with_trail(const Program& plain);

}  // namespace sim
