// copies: the asynchronous copies of a block that are still on their way
//
// The bytes of a copy land when its issuing thread waits for it, or when a wait on
// its mbarrier needs it, and never before: whoever reads them earlier, or misses
// the barrier after the wait, is told so. PTX ISA 9.7.9.25, "Asynchronous copy".
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "clock.h"
#include "epoch.h"
#include "phases.h"
#include "program.h"

namespace sim {

struct Block;

// Bytes of global memory that a copy reads while the kernel may write them, and who had written them when it began.
struct CopySource {
    int lane;
    u64 address;
    u32 bytes;
    std::vector<Epoch> writers;
};
using CopySources = std::shared_ptr<const std::vector<CopySource>>;  // null: nothing that may be written

// What one warp instruction copies into shared memory; data are read at once.
struct Copy {
    static constexpr u32 MOST = 16;  // bytes of a lane
    u32 pc = 0, warp = 0, bytes = 0;
    Mask mask = 0;
    s64 barrier = -1;  // the mbarrier that it completes on; -1: the thread's groups
    u32 clock = 0;     // of the warp when it became the mbarrier's
    u32 group[LANES];
    u64 to[LANES];
    u8 data[LANES][MOST];
    CopySources sources;
};

// Consecutive bytes of global memory that a bulk copy writes, out of its data.
struct Piece {
    u64 global;
    u32 from, bytes;
};

// Combines what is at a place with what comes there, atomically.
using Combine = void (*)(u8* place, const u8* value);

// A bulk copy by one thread, in either direction. Its source is read at once.
struct BulkCopy {
    u32 pc = 0, rank = 0, warp = 0;
    int lane = 0;
    u64 shared = 0, extent = 0;  // the range of shared memory that it reads or writes
    u64 bytes = 0;               // what its mbarrier is told
    s64 barrier = -1;            // -1: the thread's bulk groups
    u64 phase = 0;               // of the mbarrier when the copy was issued
    VectorClock known;           // what the thread knew when it issued the copy
    LastWait after;              // the last wait of its warp then
    u32 group = 0;
    std::vector<u8> data;         // of a load in the order of shared memory
    std::vector<u8> written;      // of a range with gaps: 1 for each byte that is copied
    std::vector<Piece> pieces;    // of a store
    u64 lowest = 0, highest = 0;  // between which these lie
    void add_piece(u64 global, u32 from, u32 size) {
        lowest = pieces.empty() || global < lowest ? global : lowest;
        highest = pieces.empty() || global + size > highest ? global + size : highest;
        pieces.push_back({global, from, size});
    }
    Combine combine = nullptr;  // of a reduction, of values with so many bytes
    u32 item = 0;
    bool has_read = false;  // a store's source is free again
    bool repeats = false;   // another lane of the warp stores the same bytes to the same place by the same instruction
    CopySources sources;
};

class Copies {
 public:
    explicit Copies(Block& block) : block_(block) {}
    void forget();

    void issue(Warp& warp, Copy copy);
    void commit(const Warp& warp, Mask mask);
    void wait(Warp& warp, Mask mask, u32 groups_left, bool of_all = false);  // of_all: of copies in no group, too
    // The lanes' own copies become the mbarrier's.
    void hand_over(const Warp& warp, Mask mask, s64 barrier, u32 clock);

    void issue_bulk(Warp& warp, BulkCopy copy);
    void read_at_once(Warp& warp, const BulkCopy& copy);  // a source that is free again with the instruction
    void commit_bulk(const Warp& warp, Mask mask);
    // Until the stores of these groups have read their source or, unless `reads` is enough, have written.
    void wait_bulk(Warp& warp, Mask mask, u32 groups_left, bool reads);

    // The part of a copy's source that the kernel may write: `bytes` bytes for each lane.
    CopySources sources(const Warp& warp, Mask mask, const u64* from, const u32* bytes) const;
    void add_source(const Warp& warp, int lane, u64 from, u32 bytes, std::vector<CopySource>& found) const;
    // The bulk load whose places are being checked before it begins; null: none is.
    const BulkCopy* beginning() const { return beginning_; }
    // Whether any may be on its way, and is not just landing.
    bool may_fly() const { return any_ && !landing_; }

    // Everything that completes on the mbarrier lands; gives the bulk copies among it.
    std::vector<BulkCopy> land_on(s64 barrier);
    // Whether bulk stores may still read shared memory, or have yet to write global memory.
    bool may_read() const { return !stores_.empty(); }
    // Stops where a lane writes what a bulk store may still read, or touches what one has yet to write.
    void check_readers(Warp& warp, Mask mask, const u64* address, u32 bytes) const;
    void check_writers(Warp& warp, Mask mask, const u64* address, u32 bytes, Access access) const;
    // Stops where a lane touches bytes that are on their way.
    void check(Warp& warp, Mask mask, const u64* address, u32 bytes, Access access) const;
    // Where bytes that no thread has written are read: which copies have arrived and were not read.
    std::vector<std::string> notes_on_unwritten(u64 address, u32 bytes) const;
    void finish();  // the block ends

 private:
    void check_group(const Warp& warp, const Copy& copy) const;
    void land(const Copy& copy, Mask lanes);
    void check_sources(const Warp& warp, u32 pc, const CopySources& sources, Mask lanes) const;
    Warp& issuer(const BulkCopy& copy) const;
    std::string wanted(const BulkCopy& copy) const;
    void record_bulk(Warp& warp, const BulkCopy& copy, Access access);
    void land_bulk(const BulkCopy& copy);
    void free_source(BulkCopy& copy);
    void store_bulk(const BulkCopy& copy);
    void check_fence(const Warp& warp, const BulkCopy& copy) const;
    const u32* in_flight(u64 address, u32 bytes, Site* issued) const;  // the pc of the copy, and who issued it
    const Copy* flying(u64 address, u32 bytes, int* lane) const;
    std::vector<std::string> notes(const Copy& copy, int lane, u64 address, u32 bytes) const;
    std::vector<std::string> words_on_release(const Warp& warp, int lane, u64 address, u32 bytes) const;
    std::vector<std::string> bulk_notes(u64 address, u32 bytes) const;
    std::string note_on_wait(const Copy& copy, int lane, bool is_stage) const;
    // Words on bytes that have arrived and were not read; same_place: at the same place of another stage alone.
    std::string unread_elsewhere(u64 address, u32 bytes, bool same_place) const;
    std::string words_on_ungrouped(u64 address, u32 bytes) const;  // of copies of these bytes

    Block& block_;
    std::deque<Copy> flying_[WARPS_PER_BLOCK];  // of each warp, in the order of issue
    std::vector<BulkCopy> loads_, stores_;
    struct Wait {  // the last one of a thread's
        u32 pc = 0, groups_left = 0, committed = 0;
        u32 without = 0;  // waits, up to this one, since each of which it has committed nothing
        u32 before = 0;   // the pc of the one before it; its own where there is none
        bool any = false, needs_no_group = false;
    };
    Wait waits_[WARPS_PER_BLOCK][LANES];
    u32 committed_[WARPS_PER_BLOCK][LANES] = {}, committed_bulk_[WARPS_PER_BLOCK][LANES] = {};  // of each thread
    bool any_ = false, landing_ = false;
    const BulkCopy* beginning_ = nullptr;
};

}  // namespace sim
