// warpgroup: four warps that multiply matrices together, and what their products have under way
//
// Each warp computes its 16 rows when it comes to the instruction; until the wait for its group, its registers and the
// bytes that it read in shared memory count as in use. The warps of a warpgroup do the same in the same order, and a
// group is done when all four have committed it. PTX ISA 9.7.15, "Asynchronous Warpgroup Level Matrix Instructions".
//
// wgmma.commit_group makes one group "per warpgroup", and wgmma.wait_group waits until it is complete: the products of
// all four warps are. So one warp that has waited may hand the tiles on for the warpgroup, as a pipeline does whose
// consumers free a stage by one thread. Registers are another matter: who touches those of a product must itself have
// waited for it.
#pragma once
#include <deque>
#include <vector>

#include "clock.h"
#include "finding.h"
#include "phases.h"
#include "product.h"
#include "program.h"

namespace sim {

struct Block;
struct Warp;

class Warpgroups {
 public:
    explicit Warpgroups(Block& block);
    void forget();  // a new block begins

    // The warp is at its next step of the warpgroup; stops where the other three have come to another one.
    void step(Warp& warp, u64 a = 0, u64 b = 0);
    void fence(Warp& warp);
    void commit(Warp& warp);
    // False: not all warps have committed what is waited for. The warp stays there until they have.
    bool wait(Warp& warp, u32 groups_left);
    // The last group that has a product of the warp.
    u32 last_group(const Warp& warp) const { return states_[warp_index(warp)].last_group; }

    // ---- registers; rows by their place in the register file
    void read_row(Warp& warp, s32 row);  // by an ordinary instruction
    // By one too. A constant may come late: the compiler moves those of the source, ptxas before the fence.
    void write_row(Warp& warp, s32 row, bool constant);
    void rename_row(Warp& warp, s32 to, s32 from);
    void use_rows(Warp& warp, const s32* rows, int accumulators, int sources, bool adds);  // by a product

    // ---- shared memory
    // A product of this warp reads 16 bytes there: after the checks.
    void read_chunk(Warp& warp, u64 address);
    void check_write(Warp& warp, Mask mask, const u64* address, u32 bytes) const;

    // Floats that a product made of bytes, for the other three warps.
    struct Converted {
        std::vector<u8> bytes;
        std::vector<f32> values;
        std::vector<Right> ready;  // of each eight columns; none of whole numbers
        u32 kind = 0;
    };
    Converted& converted(const Warp& warp);

    void exit(Warp& warp);  // all of its lanes do
    void deadlock();        // stops where a warp waits for others of its warpgroup

 private:
    struct Step {
        u32 pc = 0, warp = 0;
        u64 a = 0, b = 0;
    };
    struct Group {
        std::deque<Step> steps;  // that not all warps have come to, or all have
        u64 first = 0;           // the number of the first of these
        u64 at[4] = {};          // of each warp: its next step
        u32 committed[4] = {};   // groups
        Mask waiting = 0;        // warps
        Converted converted;
    };
    struct Row {
        u32 group = 0;  // that uses it; 0: none
        u32 pc = 0;     // of the product
        bool accumulates = false;
        bool written = false;  // since the last fence
        bool set = false;      // since the block began
        u32 writer = 0;        // pc
    };
    struct State {  // of a warp
        std::vector<Row> rows;
        std::vector<s32> written;
        bool fenced = false;
        u32 done = 0;        // groups that it has waited for
        u32 last_group = 0;  // that has a product of it
        u32 last_pc = 0;     // of that product
        struct Wait {        // the last one that ended
            bool any = false;
            u32 pc = 0, groups_left = 0, committed = 0;
        } wait;
    };
    struct Reading {
        u32 group = 0, pc = 0;
    };

    Group& group_of(const Warp& warp) { return groups_[warp_index(warp) / 4]; }
    State& state_of(const Warp& warp) { return states_[warp_index(warp)]; }
    static u32 warp_index(const Warp& warp);
    Row& row_at(const Warp& warp, s32 row) { return state_of(warp).rows[size_t(row) / ROW_STEP]; }
    bool in_use(const Warp& warp, const Row& row);
    std::string too_early(const Warp& warp, u32 group) const;  // why a product of that group has not been waited for
    [[noreturn]] void left_out(const Warp& missing, const Step& step) const;
    [[noreturn]] void stop(const Warp& warp, u32 pc, FindingKind kind, const std::string& message) const;
    std::string line(u32 pc) const;
    std::string wanted(const Warp& warp, u32 warpgroup, u32 group) const;  // what must come before the warp writes
    std::string note_on_wait(const Warp& warp, u32 warpgroup, const Reading& reading) const;
    void check_waits(
        const Warp& writer, u32 warpgroup, const Reading& reading, u64 address, u32 bytes) const;  // of who reads

    static constexpr size_t ROW_STEP = 64;

    Block& block_;
    std::vector<Group> groups_;
    std::vector<State> states_;
    std::vector<Reading> readings_;  // [chunk][warpgroup]
    bool any_ = false;
    bool read_unwritten_ = false;  // a product has read what no thread had written: the block's pending finding
    LastWait unwritten_wait_;      // the last wait of its warp then
    u64 verified_ = 0;             // the last writer of shared memory that a product could read, and by which warp
    u32 verified_by_ = 0;
};

}  // namespace sim
