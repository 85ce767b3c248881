// api: the engine's own interface, for ctypes
//
// Text that is returned stays valid until the next call of the same function.
#include <new>

#include "decode.h"
#include "device.h"
#include "lexer.h"
#include "runtime.h"

using namespace sim;

// null, or why the PTX cannot be read
SIM_EXPORT const char* sim_load(const char* ptx, const char* source, const char* arch, int threads) {
    static std::string error;
    try {
        Device::get().load(ptx, source, arch, threads);
    } catch (const SyntaxError& e) {
        error = e.what();
        return error.c_str();
    } catch (const std::bad_alloc&) {
        error = "there is not enough memory for its variables";
        return error.c_str();
    }
    return nullptr;
}

// How the source declares an array in shared memory; a size of 0 is not known.
SIM_EXPORT void sim_shape(const char* name, u32 itemsize, int count, const u32* sizes) {
    Device::get().module.add_shape(name, {itemsize, std::vector<u32>(sizes, sizes + count)});
}

SIM_EXPORT void sim_begin(u64 seed, u64 limit) {
    Device::get().begin(seed, limit);
}

// The call runs on a smaller card: its multiprocessors, the blocks that are resident on each, and the bytes of shared
// memory that a block may have, 0: as many as on the full card.
SIM_EXPORT void sim_shrink_card(int multiprocessors, u64 resident, u64 shared_bytes) {
    Device::get().shrink_card(multiprocessors, resident, shared_bytes);
}

// In this call, a number that the launcher gives is another: see host_changes.h.
SIM_EXPORT void sim_change_host(const char* of, u32 place, u32 how, u64 number) {
    Device::get().host_changes.add({of, place, HostChange::How(how), number});
}

// In this call, what a thread reads of its local memory may be unset, and a wgmma's registers may be read and written
// before it is waited for: without optimisation, nvcc copies the padding of structs, and keeps accumulators in memory.
// The simulator's wgmma has its result at once, so that the answer is the same.
SIM_EXPORT void sim_distrust_volatile() {
    Device::get().distrust_volatile();
}

SIM_EXPORT void sim_forgive_copies() {
    Device::get().forgive_copies();
}

// Whether a launcher has asked, in this call or before, what card it is on.
SIM_EXPORT int sim_asked_card() {
    return Device::get().asked_card();
}

// The device address of a new buffer. An input's bytes must outlive the call;
// an output's are copied.
SIM_EXPORT u64
sim_add_buffer(const char* name, int input, int output, u32 itemsize, u64 bytes, u64 offset, const void* data) {
    const auto* contents = static_cast<const u8*>(data);
    return Device::get().add_buffer(name, input != 0, output != 0, itemsize, bytes, offset, contents);
}

// The host address of a buffer's bytes.
SIM_EXPORT const void* sim_bytes(u64 address) {
    const Allocation* allocation = Device::get().memory.find(address);
    return allocation ? allocation->data : nullptr;
}

// The call's findings as a JSON list.
SIM_EXPORT const char* sim_findings() {
    static std::string text;
    Device::get().close();
    text = "[";
    for (const Finding& finding : Device::get().findings) text += (text.size() > 1 ? "," : "") + json(finding);
    text += "]";
    return text.c_str();
}

// launches, warp instructions, thread instructions
SIM_EXPORT void sim_counters(u64* counters) {
    const Device& device = Device::get();
    counters[0] = device.launches;
    counters[1] = device.executed;
    counters[2] = device.executed_lanes;
}

// Asks who writes these bytes last; `key` is what the answer calls them.
SIM_EXPORT void sim_watch(const char* key, u64 address, u32 bytes) {
    Device::get().watch.add(key, address, bytes);
}

// The last writers of what is watched and was written, as a JSON object.
SIM_EXPORT const char* sim_writers() {
    static std::string text;
    text = Device::get().watch.json();
    return text.c_str();
}

// Where a kernel of the call used an atomic that gives another result in another order of threads, as a JSON object;
// null where none did.
SIM_EXPORT const char* sim_order() {
    static std::string text;
    text = Device::get().has_order ? json(Device::get().order) : "null";
    return text.c_str();
}

// The launches of the call, a JSON list in their order.
SIM_EXPORT const char* sim_launched() {
    static std::string text;
    text = Device::get().launched();
    return text.c_str();
}

// Counts what the call's kernels do.
SIM_EXPORT void sim_count() {
    Device::get().count();
}

// What was counted, a JSON list of kernels.
SIM_EXPORT const char* sim_counted() {
    static std::string text;
    text = Device::get().counters();
    return text.c_str();
}

// Notes where the call's kernels first make a nan, or an infinity, of other values.
SIM_EXPORT void sim_trace() {
    Device::get().trace();
}

// What was noted, a JSON list in the order of time.
SIM_EXPORT const char* sim_births() {
    static std::string text;
    text = Device::get().births.json();
    return text.c_str();
}

// Notes the accesses of the call, 1, or what it moves that the last call so noted did not, 2: see trail.h.
SIM_EXPORT void sim_follow(int role, u64 focus) {
    Device::get().follow(role == 1 ? Trail::Role::first : Trail::Role::second, focus);
}

// What was found, a JSON object.
SIM_EXPORT const char* sim_trail() {
    static std::string text;
    text = Device::get().trail.json();
    return text.c_str();
}

// What threads came to in all calls until now, a JSON list of kernels: see coverage.h.
SIM_EXPORT const char* sim_coverage() {
    static std::string text;
    text = Device::get().module.coverage();
    return text.c_str();
}

// What the call's launcher asked of the CUDA runtime, a line each.
SIM_EXPORT const char* sim_runtime_calls() {
    static std::string text;
    text = Device::get().runtime_calls.text();
    return text.c_str();
}

SIM_EXPORT void sim_end() {
    Device::get().end();
}

// All kinds of findings, one a line.
SIM_EXPORT const char* sim_finding_kinds() {
    static std::string text;
    text.clear();
    for (int i = 0; i < FINDING_KINDS; ++i) text += std::string(name_of(FindingKind(i))) + "\n";
    return text.c_str();
}

// The wavefronts of one access of a warp to shared memory: what the tests hold against a card's.
SIM_EXPORT u64 sim_wavefronts(const u64* address, u32 mask, u32 bytes, int is_load) {
    return wavefronts_of(mask, address, bytes, is_load ? Access::read : Access::write, is_load != 0).count;
}

// All instruction forms of the tables, one a line.
SIM_EXPORT const char* sim_forms() {
    static std::string text;
    text.clear();
    for (const OpcodeEntry& entry : operations().entries()) text += entry.form + "\n";
    return text.c_str();
}

// What the differential tests need to write a program for a form: "form<tab>how its operands stand<tab>bytes of each",
// 0 for a predicate, one line for every form whose operands are all registers.
SIM_EXPORT const char* sim_signatures() {
    static std::string text;
    text.clear();
    for (const OpcodeEntry& entry : operations().entries()) {
        const bool compares = entry.lower == lower_setp;
        if (entry.lower != lower_positional && entry.lower != lower_video && !compares) continue;
        text += entry.form + (compares ? (entry.option ? "\tjoined" : "\tcompare") : "\tplain") + "\t";
        const Signature& signature = entry.operation.signature;
        for (int i = 0; i < signature.count; ++i) text += std::to_string(signature.shape[i].bytes) + " ";
        text += "\n";
    }
    return text.c_str();
}
