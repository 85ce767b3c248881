// shared: the shared memory of one block, and who touched it since when
//
// Each granule remembers two of its last writers and two of its last readers,
// each with the clock of its warp at that time: whoever comes next differs from
// one of the two. A warp knows up to which clock of every other warp it has
// synchronised (Warp::known). An access that meets one that is later than that,
// by another thread, is a data race (clock.h, epoch.h).
#pragma once
#include <vector>

#include "epoch.h"
#include "program.h"

namespace sim {

struct Warp;

class SharedMemory {
 public:
    // `ranks`: blocks of the cluster that may touch it.
    void prepare(u64 bytes, u32 granule_shift, u32 ranks);
    void become(u32 rank) { rank_ = rank; }
    void forget();  // a new block begins: all bytes are uninitialised again

    u8* data() { return data_.data(); }
    u64 bytes() const { return bytes_; }
    u64 granule_bytes() const { return u64(1) << shift_; }

    // Records the accesses of the lanes; true where one races with an earlier
    // access.
    bool record(
        const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access, bool strong, Spread spread,
        Race* race);
    // The first lane that reads bytes which nobody wrote, or -1.
    int uninitialised(Mask mask, const u64* address, u32 bytes, Spread spread = Spread::any) const;
    // Whether a copy on its way will write any of these bytes.
    bool in_flight(Mask mask, const u64* address, u32 bytes) const;
    // Bytes that an asynchronous copy has written, and that no thread has read or overwritten since.
    void arrive(Mask mask, const u64* address, u32 bytes);
    void read_arrived(Mask mask, const u64* address, u32 bytes);
    bool readable(u64 address) const { return initialised_[address] & READABLE; }
    bool unread(u64 address) const { return initialised_[address] & UNREAD; }
    Epoch last_writer(u64 address) const { return writer_[address >> shift_]; }
    void initialise(Mask mask, const u64* address, u32 bytes);
    void depart(
        Mask mask, const u64* address, u32 bytes);  // an asynchronous copy will write there: uninitialised until then

 private:
    // State of a byte: it may be read; a copy in flight will write it; no thread has read what a copy wrote there.
    static constexpr u8 READABLE = 1, IN_FLIGHT = 2, UNREAD = 4;

    bool all_readable(u64 address, u32 bytes) const;
    bool record_in_cluster(
        const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access, bool strong, Race* race);
    bool ordered_in_cluster(const Warp& warp, Epoch earlier, Epoch me) const;
    bool record_one(const Warp& warp, Epoch me, Access access, u64 granule, Race* race);
    bool record_read(const Warp& warp, Epoch me, u64 granule, Race* race);
    bool record_write(const Warp& warp, Epoch me, bool atomic, u64 granule, Race* race);
    bool record_disputed_read(const Warp& warp, Epoch me, u64 granule, Race* race);
    bool record_disputed_write(const Warp& warp, Epoch me, bool atomic, u64 granule, Race* race);
    void note_reader(const Warp& warp, Epoch me, u64 granule);
    bool broadcast_read(const Warp& warp, Mask mask, u64 address, u32 bytes, bool strong);

    u64 bytes_ = 0;
    u32 shift_ = 2;
    u32 ranks_ = 1, rank_ = 0;  // blocks of the cluster, and which of them this one's is
    std::vector<u8> data_, initialised_;
    std::vector<Epoch> writer_, other_writer_, reader_, other_reader_;
};

}  // namespace sim
