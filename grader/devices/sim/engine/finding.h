// finding: something a launch did wrong, in the learner's terms
#pragma once
#include <string>
#include <vector>

#include "scalar.h"

namespace sim {

// Those values of grader.verdict.Kind that a finding can have.
enum class FindingKind : u8 {
    out_of_bounds,
    misaligned,
    uninitialised,
    race,
    deadlock,
    launch_failed,
    crash,
    time_out,
    modified_input,
    unsupported,
    divergent_barrier,
};
constexpr int FINDING_KINDS = int(FindingKind::divergent_barrier) + 1;
const char* name_of(FindingKind kind);  // as grader.verdict has it

// The thread and the line that an access or a finding is of, as far as they are known.
struct Site {
    std::string kernel;
    std::string file;
    u32 line = 0;              // 0: unknown
    std::vector<u32> callers;  // lines that the line's function was inlined into, from the inside out
    bool has_thread = false;
    u32 block[3] = {0, 0, 0};
    u32 thread[3] = {0, 0, 0};
};

// One of the two accesses of a race, and what it does there: "reads", "writes", "updates" or "copies".
struct Side : Site {
    std::string does;
};

struct Finding : Site {
    FindingKind kind = FindingKind::unsupported;
    std::string message;
    std::string buffer;
    std::string place;        // of a race, such as "tile[1][0]"
    std::vector<Side> sides;  // and its accesses, the earlier one first; empty where they are not known
    bool has_index = false;
    s64 index = 0;
    std::vector<std::string> notes;   // sentences on what led to it
    std::vector<std::string> phases;  // and on the phases of mbarriers behind it
};

// Unwinds the interpreter once a finding is recorded.
struct Halt {};

// The words for an access outside of something: "c[257], one element past the
// end of c (257 elements)".
struct Place {
    std::string text;
    s64 index = 0;
};
Place outside(const std::string& name, s64 offset, u64 bytes_in_all, u32 itemsize, u32 access_bytes);
Place inside(const std::string& name, s64 offset, u32 itemsize, u32 access_bytes);

// An array of several dimensions, as its declaration in the source has it; PTX knows its bytes alone. None: of one
// dimension. An itemsize of 0: it has several, and what they are is not known.
struct ArrayShape {
    u32 itemsize = 0;
    std::vector<u32> sizes;  // in a declaration, 0 is what is not known
};
// The same words for an array with this shape: "tile[1][0]"; they say so where they count row by row.
Place outside(const std::string& name, const ArrayShape& shape, s64 offset, u64 bytes_in_all, u32 access_bytes);
Place inside(const std::string& name, const ArrayShape& shape, s64 offset, u32 access_bytes);
// The declared shape, with its first size from the bytes where that one is not known; none where it does not fit them.
ArrayShape fitted(const ArrayShape& declared, u64 bytes);

std::string plural(u64 count,
                   const std::string& noun);           // "1 thread", "2 threads"
std::string triple_name(u32 x, u32 y, u32 z);          // "(1,0,0)"
std::string thread_name(u32 x, u32 y, u32 z);          // "thread (1,0,0)"
std::string demangled(const std::string& symbol);      // "foo<float>", without parameters
std::string variable_name(const std::string& symbol);  // "tile" for kernel()::tile
std::string quoted(const std::string& text);           // as a JSON string
std::string triple(const u32* v);                      // as a JSON list
std::string json(const Site& site);
std::string json(const Finding& finding);

}  // namespace sim
