// program: one kernel, decoded: what the warps of a launch execute
//
// Registers are rows of 32 lanes at fixed offsets in a warp's register file;
// constants and special registers are rows too, so that every operand of an
// instruction is just an offset. A predicate is one 32-bit mask, a bit for each
// lane.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "finding.h"
#include "ptx.h"
#include "scalar.h"
#include "special.h"

namespace sim {

using Mask = u32;
constexpr int LANES = 32;
constexpr Mask ALL = ~Mask(0);

struct Warp;
struct Instruction;
struct OpcodeEntry;

// Executes one instruction for the lanes of the mask, which is never empty.
using Handler = void (*)(Warp&, const Instruction&, Mask);

enum class Access : u8 { read, write, atomic };

// What is known of the addresses of an access: all 32 lanes have one, or each lane's bytes follow those of the lane
// before it.
enum class Spread : u8 { any, same, row };

// Checks the access of `bytes` bytes by each lane of the mask and gives the
// host address of each, of a read that is not Spread::any perhaps only the
// first lane's. Throws Halt.
using AccessCheck = Spread (*)(Warp&, const Instruction&, Mask, u32 bytes, Access, u8** at);

enum class Flow : u8 {
    next,       // falls through to the next instruction
    branch,     // the lanes of the guard go to `target`
    warp_sync,  // a .sync instruction: runs once all lanes of its member mask (operand `target`) stand at it
    leave,      // the handler moves the lanes itself
};

constexpr int OPERANDS = 8;

struct Instruction {
    Handler run = nullptr;
    AccessCheck check_access = nullptr;
    s32 guard = -1;  // row of the predicate; -1: always
    bool guard_negated = false;
    Flow flow = Flow::next;
    u8 option = 0;                            // a modifier that the handler reads; of a load: what it gives may be
                                              // nonsense that is not used (ld.global.nc of an asm statement, as __ldg
                                              // of half, may have been moved above its check; ld.shared of one)
    bool strong = false;                      // volatile, relaxed, acquire, release: not a data race
                                              // with its like
    bool parts = false;                       // a strong load or store: lanes need not do it in step
    bool acquires = false, releases = false;  // has a fence of its own
    bool wide_address = true;
    bool conditional = false;  // has an optional source: see the handler
    s32 address = -1;          // row of the base address; -1: the immediate alone
    s32 operand[OPERANDS] = {};
    s64 immediate = 0;
    u32 target = 0;    // pc, or an index into one of the program's tables
    u32 location = 0;  // Module::locations
    s32 extent = -1;   // in Program::shared: the array that the address must stay in; -1: any
    const OpcodeEntry* entry = nullptr;
};

struct ConstantRow {
    s32 offset;
    u8 bytes;
    u64 bits;
};

struct SpecialRow {
    s32 offset;
    const Special* special;
};

// A variable's place in shared or local memory, or a parameter's place in the
// parameter buffer.
struct Extent {
    std::string name;
    u64 offset = 0;
    u64 bytes = 0;
    ArrayShape shape = {};
};

// One call site: where the callee starts, and which of the caller's local bytes
// become its parameters.
struct CallSite {
    struct Copy {
        u32 from, to, bytes;
    };
    u32 target = 0;
    std::string callee;
    std::vector<Copy> arguments, results;
    std::vector<u32> argument_offsets;
    bool builtin = false;
    s32 frame = -1;  // in Program::frames, of a callee that calls itself
};

// What an activation has for itself of a function that calls itself, directly or through others.
struct Frame {
    struct Register {
        s32 row;
        u8 bytes;  // 0: predicate
    };
    struct Part {
        u64 offset, bytes;
    };
    std::vector<Register> registers;
    std::vector<Part> parameters;  // in local memory: its own, and those of its calls
    u64 saved_bytes = 0;           // of both, without predicates
    u64 variable_bytes = 0;        // of the stack
    s32 base_row = -1;             // row of the local address where its variables begin; -1: it has none
};

// A call through a pointer: the call site for each function that it may lead to.
using IndirectCall = std::vector<std::pair<u64, u32>>;

struct Limits {
    u32 max_threads = 1024;
    u32 required[3] = {0, 0, 0};
    u32 min_blocks = 0;
    u32 max_registers = 0;       // of a thread; 0: not limited
    u32 taken_registers = 0;     // of a thread, the most that setmaxnreg.inc asks for; 0: none does
    bool bounded = false;        // max_threads is the kernel's own
    u32 cluster[3] = {0, 0, 0};  // 0: none is required
};

// Which ways the branches of a program went, in any launch. Each instruction has two bytes: 1 where a thread fell
// through, and 1 where one jumped. Threads of the host write them side by side, all the same.
class Ways {
 public:
    explicit Ways(size_t instructions) : bytes_(new std::atomic<u8>[2 * instructions]()) {}
    void note(u32 at, bool jumped) {  // what is there already is not written again: others read it
        std::atomic<u8>& byte = bytes_[2 * size_t(at) + jumped];
        if (!byte.load(std::memory_order_relaxed)) byte.store(1, std::memory_order_relaxed);
    }
    bool went(u32 at, bool jumped) const {
        return bytes_[2 * size_t(at) + jumped].load(std::memory_order_relaxed) != 0;
    }
    std::atomic<bool> launched{false};

 private:
    std::unique_ptr<std::atomic<u8>[]> bytes_;
};

struct Program {
    std::string symbol;  // as in the PTX
    std::string name;    // demangled, without its parameters
    std::vector<Instruction> code;
    std::vector<CallSite> calls;
    std::vector<IndirectCall> indirect_calls;
    std::vector<Frame> frames;
    std::vector<s32> fragments;  // rows of the registers of matrices, one instruction's after the other's
    std::vector<std::vector<u32>> branch_tables;
    u64 row_bytes = 0;
    std::vector<ConstantRow> constants;
    std::vector<SpecialRow> specials;
    std::vector<Extent> parameters;
    u64 parameter_bytes = 0;
    std::vector<Extent> shared;
    u64 static_shared = 0;
    u64 dynamic_base = 0;  // where dynamic shared memory begins
    std::vector<Extent> local;
    u64 local_bytes = 0;
    u64 variable_bytes = 0;    // of local_bytes, what the kernel's variables take; parameters of calls take the rest
    bool polls = false;        // loads what other blocks may write meanwhile: it may wait for them
    bool allocates = false;    // calls malloc or free
    bool async_proxy = false;  // touches shared memory through the async proxy
    bool multiplies = false;   // has wgmma
    std::unordered_set<s32> matrix_rows;    // registers of its matrices, and their copies
    std::unordered_set<s32> set_elsewhere;  // those that other instructions write, too, than those that are watched
    std::vector<Handler> unwatched;  // of such a program: what instructions do that touch registers of its matrices
    bool fences = false;             // has fences: locks and flags may order accesses
    u32 granule_shift = 2;           // log2 of the narrowest access to shared memory: the
                                     // race detector's grain
    u32 global_shift = 4;            // the same for global memory
    Limits limits;
    const ptx::Module* module = nullptr;
    std::shared_ptr<Ways> ways;
    const Program* plain = nullptr;  // the program that this one counts (counters.h)
};

}  // namespace sim
