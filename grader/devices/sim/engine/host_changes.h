// host_changes: numbers that a launcher gives the CUDA runtime, and what they are in the calls of a diagnosis
#pragma once
#include <string>
#include <vector>

#include "scalar.h"

namespace sim {

struct Geometry;
struct Program;

// One number, of all launches of a kernel or of all calls of a function of the runtime.
struct HostChange {
    enum Place : u32 { GRID = 0, BLOCK = 3, SHARED = 6, BYTES = 7, PARAMETER = 8 };  // and one more for each axis
    enum How : u32 {
        SET,       // it is `number`
        ADD,       // `number` is added
        MULTIPLY,  // it is times `number`
        SCALE,     // a float, times the float `number`
        TAKE,      // it is what the launcher gives as place `number`
    };
    std::string of;
    u32 place = 0;
    How how = SET;
    u64 number = 0;
};

class HostChanges {
 public:
    void clear() { changes_.clear(); }
    void add(HostChange change) { changes_.push_back(std::move(change)); }
    // What a launch of the kernel has in the place of what the launcher gave.
    Geometry changed(const std::string& kernel, const Geometry& given) const;
    void change_parameters(const Program& program, std::vector<u8>& bytes) const;
    // How many bytes a function of the runtime allocates, copies or fills.
    u64 bytes(const char* function, u64 given) const;
    bool changes_shared(const std::string& kernel) const;

 private:
    std::vector<HostChange> changes_;
};

}  // namespace sim
