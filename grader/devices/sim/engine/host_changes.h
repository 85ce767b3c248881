// host_changes: numbers that a launcher gives the CUDA runtime, and what they are in the calls of a diagnosis
#pragma once
#include <string>
#include <vector>

#include "scalar.h"

namespace sim {

struct Geometry;
struct Program;
struct TensorArguments;

// One number, of all launches of a kernel or of all calls of a function of the runtime.
struct HostChange {
    enum Place : u32 { GRID = 0, BLOCK = 3, SHARED = 6, BYTES = 7, PARAMETER = 8 };  // and one more for each axis
    // Of tensor maps, in the order in which they are encoded: MAP each, of which these begin their numbers.
    enum OfMap : u32 { MAP = 16, DIMS = 0, BOX = 5, SWIZZLE = 10 };
    enum How : u32 {
        SET,       // it is `number`
        ADD,       // `number` is added
        MULTIPLY,  // it is times `number`
        SCALE,     // a float or double, times the one that `number` is
        TAKE,      // it is what the launcher gives as place `number`
    };
    std::string of;
    u32 place = 0;
    How how = SET;
    u64 number = 0;
};

// What a changed tensor map is encoded from.
struct MapNumbers {
    u64 dims[5], strides[4];
    u32 box[5];
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
    // Whether the nth tensor map is encoded from other numbers, which are then kept in `numbers`.
    bool change_map(u64 nth, TensorArguments& arguments, MapNumbers& numbers) const;
    bool changes_shared(const std::string& kernel) const;

 private:
    std::vector<HostChange> changes_;
};

}  // namespace sim
