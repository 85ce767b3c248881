#include "device.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "global_shadow.h"
#include "occupancy.h"

namespace sim {

namespace {

constexpr u64 PARAMETERS_MOST = 32764;  // bytes; CUDA C++ Programming Guide 13.0

}  // namespace

Device& Device::get() {
    static Device device;
    return device;
}

void Device::load(std::string ptx, std::string source, const std::string& arch, int threads) {
    full_card_ = &card_of(arch);
    card_ = *full_card_;
    asked_card_ = false;
    threads_ = std::max(threads, 1);
    memory.clear();
    heap_.forget();
    memory.map(0, 0, AllocationKind::parameter, "the kernel's parameters", 0, nullptr);
    module.load(std::move(ptx), std::move(source), memory);
    permanent_allocations_ = memory.size();
}

// ---- one call

void Device::begin(u64 seed, u64 limit) {
    end();
    call_ = CallState();
    call_.seed = seed;
    call_.limit = limit;
    card_ = *full_card_;
    findings.clear();
    watch.clear();
    births.clear();
    runtime_calls.clear();
    host_changes.clear();
    if (!managed_.empty())
        keep(without_place(
            FindingKind::unsupported, "the __managed__ variable " + managed_ +
                                          ": memory that host and device share is not supported by the "
                                          "simulator; use __device__ and cudaMemcpyToSymbol"));
    executed = executed_lanes = launches = 0;
    has_order = false;
}

void Device::shrink_card(int multiprocessors, u64 resident, u64 shared_bytes) {
    card_.multiprocessors = multiprocessors;
    card_.most_resident = resident;
    if (!shared_bytes) return;
    card_.shared_per_multiprocessor -= card_.shared_per_block_optin - shared_bytes;
    card_.shared_per_block_optin = shared_bytes;
}

u64 Device::add_buffer(
    const std::string& name, bool input, bool output, u32 itemsize, u64 bytes, u64 offset, const u8* data) {
    if (!output) return memory.map(bytes, offset, AllocationKind::input, name, itemsize, data).base;
    Allocation& allocation = memory.allocate(bytes, offset, AllocationKind::output, name, itemsize, input);
    if (bytes) std::memcpy(allocation.data, data, bytes);
    return allocation.base;
}

void Device::end() {
    memory.end_call(permanent_allocations_);
}

void Device::keep(Finding finding) {
    constexpr size_t MOST = 8;
    close();
    for (const Finding& known : findings)
        if (known.kind == finding.kind && known.message.find(finding.message) == 0 && known.line == finding.line)
            return;
    if (findings.size() < MOST) findings.push_back(std::move(finding));
}

Finding Device::without_place(FindingKind kind, const std::string& message) const {
    Finding finding;
    finding.kind = kind;
    finding.message = message;
    return finding;
}

int Device::fail(int error) {
    if (error != SUCCESS) call_.error = error;
    return error;
}

int Device::take_error() {
    const int error = peek_error();
    if (!call_.dead) call_.error = SUCCESS;
    return error;
}

// The launcher has yet to ask for the error of the launch that has just failed.
void Device::expect_error_check() {
    call_.error_unchecked = !findings.empty() && findings.back().kind == FindingKind::launch_failed;
}

void Device::close() {
    const std::string addition = ", and the launcher does not ask (cudaGetLastError)";
    if (call_.error_unchecked && findings.back().message.find(addition) == std::string::npos)
        findings.back().message += addition;
    call_.error_unchecked = false;
}

int Device::unsupported(const std::string& sentence) {
    keep(without_place(FindingKind::unsupported, sentence));
    return fail(NOT_SUPPORTED);
}

// ---- kernels

Allocation* Device::variable(const void* host) {
    const u64 address = module.variable(host);
    return address ? memory.find(address) : nullptr;
}

const Program* Device::program(const Function& function) {
    Finding why_not;
    const Program* found = module.program(function, &why_not);
    if (!found) keep(why_not);
    return found;
}

std::vector<u8> Device::pack(const Program& p, void** arguments) const {
    std::vector<u8> bytes(std::min(p.parameter_bytes, PARAMETERS_MOST) + 16);
    for (size_t i = 0; i < p.parameters.size(); ++i) {
        const Extent& e = p.parameters[i];
        if (e.offset + e.bytes <= bytes.size()) std::memcpy(bytes.data() + e.offset, arguments[i], e.bytes);
    }
    return bytes;
}

// Whether an input's or an output's address is among a kernel's parameters.
bool Device::gets_a_buffer(const std::vector<u8>& parameters) const {
    for (size_t at = 0; at + sizeof(u64) <= parameters.size(); at += sizeof(u64)) {
        u64 word;
        std::memcpy(&word, parameters.data() + at, sizeof word);
        const Allocation* allocation = word >= GLOBAL_ORIGIN ? memory.find(word) : nullptr;
        if (allocation && (allocation->kind == AllocationKind::input || allocation->kind == AllocationKind::output))
            return true;
    }
    return false;
}

int Device::refused(const Function& f, const Program& p, const Card& card, const Geometry& geometry, bool cooperative) {
    const u64 asked = host_changes.changes_shared(p.name) ? geometry.dynamic_shared : 0;  // for as much, too
    const u64 limit = std::max(f.dynamic_shared_limit, asked);
    const Refusal refusal = refuse(card, p, limit, geometry, cooperative, f.large_clusters ? 16 : 8);
    if (!refusal.error) return SUCCESS;
    const std::string others = refusal.asks_for_more ? module.with_more_shared(f) : "";
    const std::string raised = others.empty()
                                   ? ""
                                   : (f.dynamic_shared_limit ? "; it is also raised for " : "; it is raised for ") +
                                         others + (f.dynamic_shared_limit ? "" : " alone");
    Finding finding = without_place(FindingKind::launch_failed, p.name + " is launched with " + refusal.why + raised);
    finding.kernel = p.name;
    keep(finding);
    return refusal.error;
}

int Device::launch(const void* host, const Geometry& given, void** arguments, const void* stream, bool cooperative) {
    if (call_.dead) return fail(ILLEGAL_ADDRESS);
    Function* f = module.function(host);
    if (!f) return fail(INVALID_DEVICE_FUNCTION);
    const Program* p = program(*f);
    if (!p) return fail(NO_KERNEL_IMAGE);
    // A cooperative grid of a size that the launcher did not ask for is right on the full card, where all of it runs.
    const Card& card = cooperative && !asked_card_ ? *full_card_ : card_;
    const Geometry geometry = host_changes.changed(p->name, given);
    note(p->name, geometry);
    if (const int error = refused(*f, *p, card, geometry, cooperative)) return fail(error);
    Launch launch;
    launch.program = p;
    p->ways->launched = true;
    launch.memory = &memory;
    launch.source = module.source();
    std::copy(geometry.grid, geometry.grid + 3, launch.grid);
    std::copy(geometry.block, geometry.block + 3, launch.block);
    cluster_of(*p, geometry, launch.cluster);
    launch.dynamic_shared = geometry.dynamic_shared;
    launch.stack_bytes = call_.stack_bytes;
    launch.order = (call_.seed >> 1) * 0x100000001b3u + launches;
    launch.backwards = call_.seed & 1;
    launch.seed = call_.seed * 0x100000001b3u + launches++;
    // Blocks that wait for each other take turns in one order: what a wrong file does is the same in every run.
    launch.threads = cooperative || p->polls ? 1 : threads_;
    launch.forgives_copies = call_.forgives_copies;
    launch.distrusts_volatile = call_.distrusts_volatile;
    if (card.most_resident)
        launch.resident =
            u64(card.multiprocessors) * resident_blocks(card, *p, launch.threads_per_block(), geometry.dynamic_shared);
    if (call_.counting) count(launch);
    // Each has a program of its own.
    if (call_.tracing && !call_.counting) trace(launch);
    if (call_.following && !call_.tracing && !call_.counting) follow(launch);
    if (cooperative) launch.workspace = grid_workspace();
    launch.parameters = pack(*p, arguments);
    host_changes.change_parameters(*p, launch.parameters);
    launch.limit = call_.limit;
    launch.executed = executed;
    const u32 touches = gets_a_buffer(launch.parameters) ? RuntimeCall::TOUCHES : 0;
    runtime_calls.note({"kernel", p->name, stream, nullptr, touches});
    if (p->allocates) heap_.begin(memory, call_.heap_bytes);
    Allocation& parameters = *memory.find(GLOBAL_ORIGIN);
    parameters.data = launch.parameters.data();
    parameters.bytes = p->parameter_bytes;
    GlobalShadow shadow(
        memory.size(), launch.blocks(), p->global_shift, p->fences, launch.threads > 1 && launch.blocks() > 1);
    if (launch.blocks() <= global_epoch::BLOCKS) launch.global_shadow = &shadow;
    if (p->allocates) launch.heap = &heap_;
    if (geometry.dependent && stream == call_.last_stream) launch.before = &call_.written;
    if (!watch.empty()) launch.watch = &watch;
    run_grid(launch);
    call_.written = shadow.written();
    call_.last_stream = stream;
    parameters.data = nullptr;
    finish(launch);
    return call_.dead ? fail(ILLEGAL_ADDRESS) : SUCCESS;
}

void Device::note(const std::string& kernel, const Geometry& geometry) {
    constexpr size_t MOST = 16;
    std::vector<Launched>& known = call_.launched;
    const auto alike = [&](const Geometry& g) {
        return std::equal(g.grid, g.grid + 3, geometry.grid) && std::equal(g.block, g.block + 3, geometry.block) &&
               g.dynamic_shared == geometry.dynamic_shared;
    };
    if (!known.empty() && known.back().kernel == kernel && alike(known.back().geometry))
        ++known.back().times;
    else if (known.size() < MOST)
        known.push_back({kernel, geometry});
}

std::string Device::launched() const {
    std::string text = "[";
    for (const Launched& l : call_.launched) {
        text += std::string(text.size() > 1 ? "," : "") + "{\"kernel\":" + quoted(l.kernel) +
                ",\"grid\":" + triple(l.geometry.grid) + ",\"block\":" + triple(l.geometry.block) +
                ",\"smem_bytes\":" + std::to_string(l.geometry.dynamic_shared) +
                ",\"times\":" + std::to_string(l.times) + "}";
    }
    return text + "]";
}

// What grid.sync() counts its arrivals in: its size and one word, as the driver's.
u64 Device::grid_workspace() {
    constexpr u64 BYTES = 8;
    Allocation& allocation = memory.allocate(BYTES, 0, AllocationKind::cuda_malloc, "the grid's barrier", 4, true);
    return allocation.base;
}

// The launch runs the counted program of its kernel.
void Device::count(Launch& launch) {
    const Program* plain = launch.program;
    auto known = std::find_if(call_.counted.begin(), call_.counted.end(), [&](auto& c) { return c.plain == plain; });
    if (known == call_.counted.end()) {
        call_.counted.push_back({plain, counted(*plain), std::make_unique<Counters>(plain->code.size())});
        known = call_.counted.end() - 1;
    }
    known->launches += 1;
    launch.program = known->program.get();
    launch.counters = known->counters.get();
}

const Program* Device::traced(const Program* plain, std::shared_ptr<const Program> (*make)(const Program&)) {
    auto known = std::find_if(call_.traced.begin(), call_.traced.end(), [&](auto& p) { return p->plain == plain; });
    if (known != call_.traced.end()) return known->get();
    call_.traced.push_back(make(*plain));
    return call_.traced.back().get();
}

// The launch runs a program of its kernel that notes births.
void Device::trace(Launch& launch) {
    launch.program = traced(launch.program, with_births);
    launch.births = &births;
    births.begin_launch();
}

// The launch runs a program of its kernel that notes its accesses.
void Device::follow(Launch& launch) {
    const Program* plain = launch.program;
    launch.program = traced(plain, with_trail);
    launch.trail = &trail;
    trail.begin_launch(*plain, launch.blocks_per_cluster());
}

std::string Device::counters() const {
    std::string out;
    for (const Counted& c : call_.counted)
        out += (out.empty() ? "" : ",") + json(*c.counters, *c.plain, memory, module.source(), c.launches);
    return "[" + out + "]";
}

int Device::set_limit(int limit, u64 bytes) {
    constexpr u64 MOST = 256 << 10;
    constexpr u64 MOST_HEAP = 1 << 30;
    if (limit == 0) call_.stack_bytes = std::min(bytes, MOST);      // cudaLimitStackSize
    if (limit == 2) call_.heap_bytes = std::min(bytes, MOST_HEAP);  // cudaLimitMallocHeapSize
    return SUCCESS;
}

u64 Device::limit(int limit) const {
    constexpr u64 PRINTF_BYTES = 1 << 20;
    const u64 known[] = {call_.stack_bytes, PRINTF_BYTES, call_.heap_bytes};
    return limit >= 0 && limit < 3 ? known[limit] : 0;
}

void Device::refuse_managed(const char* variable) {
    managed_ = variable_name(variable);
}

void Device::keep_order(const Launch& launch) {
    const u32 rounded = launch.float_atomic, first = rounded ? rounded : launch.other_atomic.load();
    if (!first || (has_order && (call_.float_order || !rounded))) return;
    const SourceLine where =
        source_line(*launch.program->module, launch.program->code[first - 1].location, launch.source);
    order = Site();
    order.kernel = launch.program->name;
    order.file = where.file;
    order.line = where.line;
    has_order = true;
    call_.float_order = rounded != 0;
}

void Device::finish(Launch& launch) {
    executed = launch.executed;
    executed_lanes += launch.executed_lanes;
    if (!launch.printed.empty()) {
        std::fwrite(launch.printed.data(), 1, launch.printed.size(), stdout);
        std::fflush(stdout);
    }
    keep_order(launch);
    if (!launch.finding) return;
    keep(*launch.finding);
    call_.dead = true;
}

}  // namespace sim
