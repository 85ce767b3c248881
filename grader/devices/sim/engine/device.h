// device: the simulated card, the loaded module, and the state of the call that
// runs on it
//
// There is one, because the CUDA runtime that learners call has no handle: a
// process serves one built kata.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "clock.h"
#include "counters.h"
#include "decode.h"
#include "finding.h"
#include "launch.h"
#include "memory.h"
#include "runtime_calls.h"
#include "watch.h"

namespace sim {

// The card whose limits are enforced. Source: CUDA C++ Programming Guide 13.0,
// table of technical specifications.
struct Card {
    const char* name;
    int major, minor;
    int multiprocessors;
    u64 global_bytes;
    int l2_bytes;
    u64 shared_per_multiprocessor;
    u64 shared_per_block_optin;
    int threads_per_multiprocessor;
    int blocks_per_multiprocessor;
    int clock_khz, memory_clock_khz, memory_bus_bits;
};

constexpr u64 STACK_BYTES = 1024;  // of a thread that calls itself; cudaDeviceSetLimit changes it
constexpr u64 SHARED_PER_BLOCK = 48 << 10;
constexpr u32 THREADS_PER_BLOCK = LANES * WARPS_PER_BLOCK;
constexpr u64 LOCAL_PER_THREAD = 512 << 10;

enum CudaError : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONFIGURATION = 9,
    INVALID_SYMBOL = 13,
    INVALID_DEVICE_POINTER = 17,
    INVALID_DEVICE_FUNCTION = 98,
    INVALID_DEVICE = 101,
    NO_KERNEL_IMAGE = 209,
    INVALID_RESOURCE_HANDLE = 400,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
};

struct Function {
    std::string name;
    u64 dynamic_shared_limit = 0;  // set by cudaFuncSetAttribute; 0: the default
};

struct Geometry {
    u32 grid[3];
    u32 block[3];
    u64 dynamic_shared;
};

// Why the card refuses a launch, after "is launched with"; error 0: it does not.
struct Refusal {
    int error = SUCCESS;
    std::string why;
};
Refusal refuse(const Card& card, const Program& program, u64 dynamic_limit, const Geometry& geometry, bool cooperative);

const Card& card_of(const std::string& arch);  // "sm_90a"

// A kernel's counters in one call.
struct Counted {
    const Program* plain;
    std::unique_ptr<Program> program;
    std::unique_ptr<Counters> counters;
    u64 launches = 0;
};

class Device {
 public:
    static Device& get();

    void load(std::string ptx, std::string source, const std::string& arch, int threads);

    // ---- one call of a launcher
    void begin(u64 seed, u64 limit);  // of warp instructions
    u64 add_buffer(const std::string& name, bool input, u32 itemsize, u64 bytes, u64 offset, const u8* data);
    void count() { counting_ = true; }  // the launches of this call
    std::string counters() const;       // of each kernel, as a JSON list
    void close();                       // completes its findings
    void end();                         // releases what the call allocated
    // How the source declares an array in shared memory; for every declaration, also of the same name.
    void add_shape(const std::string& name, ArrayShape shape) { shapes_[name].push_back(std::move(shape)); }

    // ---- the runtime
    void add_function(const void* host, const char* name) { functions_[host] = {name, 0}; }
    void add_variable(const void* host, const char* name) { variables_[host] = name; }
    Function* function(const void* host);
    Allocation* variable(const void* host);
    int launch(
        const void* host, const Geometry& geometry, void** arguments, const void* stream, bool cooperative = false);
    int allocate(void** pointer, u64 bytes);
    int release(void* pointer);
    int copy(const char* what, void* to, const void* from, u64 bytes);
    int fill(const char* what, void* to, int value, u64 bytes);
    // The allocation that a device range lies in, or null with a finding.
    Allocation* range(const char* what, const void* pointer, u64 bytes, const char* verb);
    int fail(int error);  // remembers the error as the runtime does
    int take_error();
    int peek_error() {
        error_unchecked_ = false;
        return error_;
    }
    void expect_error_check();                     // about the launch that has just failed
    int unsupported(const std::string& sentence);  // what the simulator leaves out is said beside the error
    int status() const { return dead_ ? ILLEGAL_ADDRESS : SUCCESS; }  // of the work that was launched
    const Card& card() const { return *card_; }
    const Program* program(const Function& function);  // null, with a finding,
                                                       // when it cannot be decoded

    int set_limit(int limit, u64 bytes);
    u64 limit(int limit) const;
    void refuse_managed(const char* variable);

    void keep(Finding finding);
    Memory memory;
    Watch watch;
    RuntimeCalls runtime_calls;  // of this call
    std::vector<Finding> findings;
    u64 executed = 0, executed_lanes = 0, launches = 0;

 private:
    void place_variables();
    void give_shapes(Program& program) const;
    void initialise(const ptx::Variable& variable, Allocation& allocation);
    std::vector<u8> pack(const Program& program, void** arguments) const;
    bool gets_a_buffer(const std::vector<u8>& parameters) const;
    u64 grid_workspace();
    void count(Launch& launch);
    void finish(Launch& launch);
    Finding without_place(FindingKind kind, const std::string& message) const;

    const Card* card_ = nullptr;
    std::unique_ptr<ptx::Module> module_;
    std::string source_;
    int threads_ = 1;
    Addresses addresses_;
    std::unordered_map<const void*, Function> functions_;
    std::unordered_map<const void*, std::string> variables_;
    std::map<std::string, Program> programs_;
    std::map<std::string, std::vector<ArrayShape>> shapes_;
    std::map<std::string, Finding> undecodable_;
    size_t permanent_allocations_ = 0;
    bool counting_ = false;
    std::vector<Counted> counted_;
    std::string managed_;  // a variable that cannot be
    u64 stack_bytes_ = STACK_BYTES;
    u64 seed_ = 0;
    u64 allocations_ = 0;
    u64 limit_ = 0;
    bool error_unchecked_ = false;  // the launcher has not asked for the error that the last finding is about
    bool dead_ = false;             // after a hard finding nothing runs any more
    int error_ = SUCCESS;
};

inline bool is_device_address(const void* pointer) {
    return reinterpret_cast<u64>(pointer) >= GLOBAL_ORIGIN;
}

}  // namespace sim
