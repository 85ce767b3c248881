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

#include "births.h"
#include "clock.h"
#include "counters.h"
#include "finding.h"
#include "heap.h"
#include "host_changes.h"
#include "launch.h"
#include "loaded_module.h"
#include "memory.h"
#include "runtime_calls.h"
#include "texture.h"
#include "trail.h"
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
    u64 reserved_shared = 1024;  // bytes that the system takes of every block
    u64 most_resident = 0;       // blocks a multiprocessor, as of a kernel with many registers; 0: any number
};

constexpr u64 STACK_BYTES = 1024;    // of a thread that calls itself; cudaDeviceSetLimit changes it
constexpr u64 HEAP_BYTES = 8 << 20;  // of a kernel's malloc; the same does for it
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
    ILLEGAL_STATE = 401,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    INVALID_CLUSTER_SIZE = 912,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
};

struct Geometry {
    u32 grid[3];
    u32 block[3];
    u64 dynamic_shared;
    u32 cluster[3] = {0, 0, 0};  // blocks; 0: the kernel's own
    bool dependent = false;      // it may begin before the launch before it has ended
};

// Why the card refuses a launch, after "is launched with"; error 0: it does not.
struct Refusal {
    int error = SUCCESS;
    std::string why;
    bool asks_for_more = false;  // dynamic shared memory than the kernel is allowed so far
};
// `largest`: the blocks that a cluster of this kernel may have.
Refusal refuse(
    const Card& card, const Program& program, u64 dynamic_limit, const Geometry& geometry, bool cooperative,
    u32 largest);
// The blocks of a cluster: what the launch asks for, or the kernel, or one.
void cluster_of(const Program& program, const Geometry& geometry, u32* cluster);

const Card& card_of(const std::string& arch);  // "sm_90a"

// A kernel's counters in one call.
struct Counted {
    const Program* plain;
    std::unique_ptr<Program> program;
    std::unique_ptr<Counters> counters;
    u64 launches = 0;
};

// Launches of one kernel in a row, with the same geometry.
struct Launched {
    std::string kernel;
    Geometry geometry;
    u64 times = 1;
};

// What begins anew with each call of a launcher.
struct CallState {
    u64 seed = 0;
    u64 limit = 0;  // of warp instructions
    u64 stack_bytes = STACK_BYTES;
    u64 heap_bytes = HEAP_BYTES;
    u64 allocations = 0;
    bool float_order = false;  // Device::order is a float atomic's
    int error = SUCCESS;
    bool error_unchecked = false;  // the launcher has not asked for the error that the last finding is about
    bool dead = false;             // after a hard finding nothing runs any more
    bool counting = false;
    bool tracing = false;               // Device::births
    bool following = false;             // Device::trail
    bool forgives_copies = false;       // see Launch
    bool distrusts_volatile = false;    // see Launch
    u64 maps = 0;                       // tensor maps that were encoded
    std::vector<bool> written;          // allocations that the last launch wrote
    const void* last_stream = nullptr;  // where it was launched
    std::vector<Counted> counted;
    std::vector<std::shared_ptr<const Program>> traced;
    std::vector<Launched> launched;  // the first of them, also those that the card refused
};

class Device {
 public:
    static Device& get();

    void load(std::string ptx, std::string source, const std::string& arch, int threads);

    // ---- one call of a launcher
    void begin(u64 seed, u64 limit);  // of warp instructions
    // The rest of this call runs on a card with so many multiprocessors and resident blocks on each, and with
    // `shared_bytes` for a block, 0: as many as the full card has.
    void shrink_card(int multiprocessors, u64 resident, u64 shared_bytes);
    bool asked_card() const { return asked_card_; }  // whether a launcher has ever asked what card it is on
    // An input is used in place. An output gets a copy of data, which counts as unwritten unless it is an input, too.
    u64 add_buffer(
        const std::string& name, bool input, bool output, u32 itemsize, u64 bytes, u64 offset, const u8* data);
    void count() { call_.counting = true; }     // the launches of this call
    void trace() { call_.tracing = true; }      // notes births in the launches of this call
    void follow(Trail::Role role, u64 focus) {  // notes what depends on an element: see trail.h
        call_.following = true;
        trail.begin(role, focus);
    }
    void forgive_copies() { call_.forgives_copies = true; }
    void distrust_volatile() { call_.distrusts_volatile = true; }
    u64 next_map() { return call_.maps++; }
    std::string counters() const;  // of each kernel, as a JSON list
    std::string launched() const;  // the launches of this call, as a JSON list
    void close();                  // completes its findings
    void end();                    // releases what the call allocated

    // ---- the runtime
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
        call_.error_unchecked = false;
        return call_.error;
    }
    void expect_error_check();                     // about the launch that has just failed
    int unsupported(const std::string& sentence);  // what the simulator leaves out is said beside the error
    int status() const { return call_.dead ? ILLEGAL_ADDRESS : SUCCESS; }  // of the work that was launched
    const Card& card() const { return card_; }
    // For the launcher, where small cards of the architecture have less.
    const Card& tell_card() {
        asked_card_ = true;
        return card_;
    }
    const Program* program(const Function& function);  // null, with a finding,
                                                       // when it cannot be decoded

    int set_limit(int limit, u64 bytes);
    u64 limit(int limit) const;
    void refuse_managed(const char* variable);

    void keep(Finding finding);
    Memory memory;
    LoadedModule module;
    Watch watch;
    Births births;
    Trail trail;  // of this call and one before it
    Textures textures;
    RuntimeCalls runtime_calls;  // of this call
    HostChanges host_changes;    // of this call
    std::vector<Finding> findings;
    u64 executed = 0, executed_lanes = 0, launches = 0;
    // An atomic of this call that gives another result in another order of threads, float ones first; and whether any.
    Site order;
    bool has_order = false;

 private:
    // The error of a launch that the card refuses, with a finding.
    int refused(const Function& f, const Program& p, const Card& card, const Geometry& geometry, bool cooperative);
    std::vector<u8> pack(const Program& program, void** arguments) const;
    bool gets_a_buffer(const std::vector<u8>& parameters) const;
    u64 grid_workspace();
    void count(Launch& launch);
    // The program of the launch's kernel that `make` makes of its plain one: once in a call.
    const Program* traced(const Program* plain, std::shared_ptr<const Program> (*make)(const Program&));
    void trace(Launch& launch);
    void follow(Launch& launch);
    void note(const std::string& kernel, const Geometry& geometry);
    void finish(Launch& launch);
    void keep_order(const Launch& launch);
    Finding without_place(FindingKind kind, const std::string& message) const;

    const Card* full_card_ = nullptr;
    Card card_ = {};
    bool asked_card_ = false;
    int threads_ = 1;
    size_t permanent_allocations_ = 0;
    Heap heap_;
    std::string managed_;  // a variable that cannot be
    CallState call_;
};

inline bool is_device_address(const void* pointer) {
    return reinterpret_cast<u64>(pointer) >= GLOBAL_ORIGIN;
}

}  // namespace sim
