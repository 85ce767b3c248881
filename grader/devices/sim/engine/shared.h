// shared: the shared memory of one block, and who touched it since when
//
// Each granule remembers two of its last writers and two of its last readers,
// each with the clock of its warp at that time: whoever comes next differs from
// one of the two. A warp knows up to which clock of every other warp it has
// synchronised (Warp::seen). An access that meets one that is later than that,
// by another thread, is a data race (vector clocks at the grain of warps;
// Flanagan, Freund 2009).
#pragma once
#include <vector>

#include "program.h"

namespace sim {

struct Warp;

// clock:32 | thread:10 | strong:1 | pc:21
using Record = u64;
inline Record make_record(u32 clock, u32 thread, bool strong, u32 pc) {
    return Record(clock) << 32 | Record(thread & 1023) << 22 | Record(strong) << 21 | (pc & 0x1fffff);
}
inline u32 record_clock(Record r) {
    return u32(r >> 32);
}
inline u32 record_thread(Record r) {
    return u32(r) >> 22;
}
inline bool record_strong(Record r) {
    return u32(r) >> 21 & 1;
}
inline u32 record_pc(Record r) {
    return u32(r) & 0x1fffff;
}

struct Race {
    Record earlier = 0;
    bool earlier_writes = false;
    u64 address = 0;
};

class SharedMemory {
 public:
    void prepare(u64 bytes, u32 granule_shift);
    void forget();  // a new block begins: all bytes are uninitialised again

    u8* data() { return data_.data(); }
    u64 bytes() const { return bytes_; }

    // Notes the accesses of the lanes; true where one races with an earlier
    // access.
    bool note(
        const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access, bool strong, Race* race, int* lane);
    // The first lane that reads bytes which nobody wrote, or -1.
    int uninitialised(Mask mask, const u64* address, u32 bytes) const;
    Record last_writer(u64 address) const { return writer_[address >> shift_]; }
    void initialise(Mask mask, const u64* address, u32 bytes);
    void depart(
        Mask mask, const u64* address, u32 bytes);  // an asynchronous copy will write there: uninitialised until then

 private:
    bool note_read(const Warp& warp, Record me, u64 granule, Race* race);
    bool note_write(const Warp& warp, Record me, bool atomic, u64 granule, Race* race);
    bool broadcast_read(const Warp& warp, Mask mask, u64 address, u32 bytes, bool strong);

    u64 bytes_ = 0;
    u32 shift_ = 2;
    std::vector<u8> data_, initialised_;
    std::vector<Record> writer_, other_writer_, reader_, other_reader_;
};

}  // namespace sim
