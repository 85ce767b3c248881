// heap: what malloc and free of a kernel give and take back
//
// Bytes that were taken back are not given again while a kernel runs. So an access that still uses them is found, and
// nothing has to order those who have them one after the other.
#pragma once
#include <map>
#include <mutex>

#include "memory.h"

namespace sim {

class Heap {
 public:
    // A kernel begins that may use it. At most `limit` bytes are in use at a time.
    void begin(Memory& memory, u64 limit);
    void forget();           // the memory is gone
    u64 take(u64 bytes);     // their address; 0: there are not so many
    bool give(u64 address);  // false: no bytes that are in use begin there

 private:
    std::mutex mutex_;
    Allocation* area_ = nullptr;
    u64 limit_ = 0, in_use_ = 0, next_ = 0;
    std::map<u64, u64> taken_;  // offset -> bytes
};

}  // namespace sim
