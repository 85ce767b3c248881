#include "device.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "global_shadow.h"

namespace sim {

namespace {

constexpr u64 PARAMETERS_MOST = 32764;  // bytes; CUDA C++ Programming Guide 13.0

}  // namespace

Device& Device::get() {
    static Device device;
    return device;
}

void Device::load(std::string ptx, std::string source, const std::string& arch, int threads) {
    card_ = &card_of(arch);
    source_ = std::move(source);
    threads_ = std::max(threads, 1);
    memory.clear();
    programs_.clear();
    shapes_.clear();
    undecodable_.clear();
    addresses_.clear();
    module_ = ptx::parse(std::move(ptx));
    memory.map(0, 0, AllocationKind::parameter, "the kernel's parameters", 0, nullptr);
    place_variables();
    permanent_allocations_ = memory.size();
}

void Device::place_variables() {
    for (const ptx::Variable& v : module_->variables) {
        const bool constant = v.space == ptx::Space::constant;
        if (v.space != ptx::Space::global && !constant) continue;
        Allocation& allocation = memory.allocate(
            v.bytes, 0, constant ? AllocationKind::constant : AllocationKind::variable,
            variable_name(std::string(v.name)), 0, true);
        allocation.writable = !constant;
        addresses_[v.name] = allocation.base;
    }
    for (const ptx::Variable& v : module_->variables) {
        const auto found = addresses_.find(v.name);
        if (found != addresses_.end()) initialise(v, *memory.find(found->second));
    }
}

void Device::initialise(const ptx::Variable& v, Allocation& allocation) {
    u64 at = 0;
    for (const ptx::Initializer& value : v.values) {
        u64 bits = value.bits;
        const auto symbol = addresses_.find(value.symbol);
        if (symbol != addresses_.end()) bits += symbol->second;
        if (!value.symbol.empty()) bits += function_address(*module_, value.symbol);
        if (at + value.size <= allocation.bytes) std::memcpy(allocation.data + at, &bits, value.size);
        at += value.size;
    }
}

// ---- one call

void Device::begin(u64 seed, u64 limit) {
    end();
    seed_ = seed;
    limit_ = limit;
    findings.clear();
    watch.clear();
    runtime_calls.clear();
    dead_ = error_unchecked_ = false;
    error_ = SUCCESS;
    stack_bytes_ = STACK_BYTES;
    counting_ = false;
    counted_.clear();
    if (!managed_.empty())
        keep(without_place(
            FindingKind::unsupported, "the __managed__ variable " + managed_ +
                                          ": memory that host and device share is not supported by the "
                                          "simulator; use __device__ and cudaMemcpyToSymbol"));
    allocations_ = executed = executed_lanes = launches = 0;
}

u64 Device::add_buffer(const std::string& name, bool input, u32 itemsize, u64 bytes, u64 offset, const u8* data) {
    if (input) return memory.map(bytes, offset, AllocationKind::input, name, itemsize, data).base;
    Allocation& allocation = memory.allocate(bytes, offset, AllocationKind::output, name, itemsize, false);
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
    if (error != SUCCESS) error_ = error;
    return error;
}

int Device::take_error() {
    const int error = peek_error();
    if (!dead_) error_ = SUCCESS;
    return error;
}

// The launcher has yet to ask for the error of the launch that has just failed.
void Device::expect_error_check() {
    error_unchecked_ = !findings.empty() && findings.back().kind == FindingKind::launch_failed;
}

void Device::close() {
    const std::string addition = ", and the launcher does not ask (cudaGetLastError)";
    if (error_unchecked_ && findings.back().message.find(addition) == std::string::npos)
        findings.back().message += addition;
    error_unchecked_ = false;
}

int Device::unsupported(const std::string& sentence) {
    keep(without_place(FindingKind::unsupported, sentence));
    return fail(NOT_SUPPORTED);
}

// ---- kernels

Function* Device::function(const void* host) {
    const auto found = functions_.find(host);
    return found == functions_.end() ? nullptr : &found->second;
}

Allocation* Device::variable(const void* host) {
    const auto found = variables_.find(host);
    if (found == variables_.end()) return nullptr;
    const auto address = addresses_.find(found->second);
    return address == addresses_.end() ? nullptr : memory.find(address->second);
}

const Program* Device::program(const Function& function) {
    const auto known = programs_.find(function.name);
    if (known != programs_.end()) return &known->second;
    const auto index =
        module_ ? module_->function_index.find(function.name) : decltype(module_->function_index.end()){};
    if (!module_ || index == module_->function_index.end() || !module_->functions[index->second].defined) {
        keep(without_place(FindingKind::unsupported, "the kernel " + demangled(function.name) + " is not in the PTX"));
        return nullptr;
    }
    try {
        Decoder decoder(*module_, addresses_);
        Program& made = programs_[function.name] = decoder.decode(module_->functions[index->second]);
        give_shapes(made);
        return &made;
    } catch (const Unsupported& e) {
        Finding finding =
            without_place(FindingKind::unsupported, std::string(e.what()) + " is not supported by the simulator");
        const SourceLine where = source_line(*module_, e.location, source_);
        finding.kernel = demangled(function.name);
        finding.file = where.file;
        finding.line = where.line;
        keep(finding);
        return nullptr;
    } catch (const std::bad_alloc&) {
        keep(without_place(
            FindingKind::unsupported, "there is not enough memory to decode " + demangled(function.name)));
        return nullptr;
    }
}

// The shape that fits the array's bytes; where none does, or two that differ, that it has several dimensions, if every
// array of its name has.
void Device::give_shapes(Program& program) const {
    for (Extent& extent : program.shared) {
        const auto declared = shapes_.find(extent.name);
        if (declared == shapes_.end()) continue;
        std::vector<ArrayShape> fitting;
        for (const ArrayShape& shape : declared->second) {
            ArrayShape found = fitted(shape, extent.bytes);
            const auto same = [&](const ArrayShape& other) { return other.sizes == found.sizes; };
            if (found.itemsize && std::none_of(fitting.begin(), fitting.end(), same)) fitting.push_back(found);
        }
        const auto& all = declared->second;
        const auto flat = [](const ArrayShape& shape) { return shape.sizes.size() == 1; };
        if (fitting.size() == 1 && !flat(fitting[0]))
            extent.shape = fitting[0];
        else if (std::none_of(all.begin(), all.end(), flat))
            extent.shape = {0, {0, 0}};
    }
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

int Device::launch(const void* host, const Geometry& geometry, void** arguments, const void* stream, bool cooperative) {
    if (dead_) return fail(ILLEGAL_ADDRESS);
    Function* f = function(host);
    if (!f) return fail(INVALID_DEVICE_FUNCTION);
    const Program* p = program(*f);
    if (!p) return fail(NO_KERNEL_IMAGE);
    if (const Refusal refusal = refuse(*card_, *p, f->dynamic_shared_limit, geometry, cooperative); refusal.error) {
        Finding finding = without_place(FindingKind::launch_failed, p->name + " is launched with " + refusal.why);
        finding.kernel = p->name;
        keep(finding);
        return fail(refusal.error);
    }
    Launch launch;
    launch.program = p;
    launch.memory = &memory;
    launch.source = source_;
    std::copy(geometry.grid, geometry.grid + 3, launch.grid);
    std::copy(geometry.block, geometry.block + 3, launch.block);
    launch.dynamic_shared = geometry.dynamic_shared;
    launch.stack_bytes = stack_bytes_;
    launch.seed = seed_ * 0x100000001b3u + launches++;
    launch.threads = threads_;
    if (counting_) count(launch);
    if (cooperative) launch.workspace = grid_workspace();
    launch.parameters = pack(*p, arguments);
    launch.limit = limit_;
    launch.executed = executed;
    const u32 touches = gets_a_buffer(launch.parameters) ? RuntimeCall::TOUCHES : 0;
    runtime_calls.note({"kernel", p->name, stream, nullptr, touches});
    Allocation& parameters = *memory.find(GLOBAL_ORIGIN);
    parameters.data = launch.parameters.data();
    parameters.bytes = p->parameter_bytes;
    GlobalShadow shadow(memory.size(), p->global_shift, p->fences, launch.threads > 1 && launch.blocks() > 1);
    if (launch.blocks() <= global_epoch::BLOCKS) launch.global_shadow = &shadow;
    if (!watch.empty()) launch.watch = &watch;
    run_grid(launch);
    parameters.data = nullptr;
    finish(launch);
    return dead_ ? fail(ILLEGAL_ADDRESS) : SUCCESS;
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
    auto known = std::find_if(counted_.begin(), counted_.end(), [&](auto& c) { return c.plain == plain; });
    if (known == counted_.end()) {
        counted_.push_back({plain, counted(*plain), std::make_unique<Counters>(plain->code.size())});
        known = counted_.end() - 1;
    }
    known->launches += 1;
    launch.program = known->program.get();
    launch.counters = known->counters.get();
}

std::string Device::counters() const {
    std::string out;
    for (const Counted& c : counted_)
        out += (out.empty() ? "" : ",") + json(*c.counters, *c.plain, memory, source_, c.launches);
    return "[" + out + "]";
}

int Device::set_limit(int limit, u64 bytes) {
    constexpr u64 MOST = 256 << 10;
    if (limit == 0) stack_bytes_ = std::min(bytes, MOST);  // cudaLimitStackSize
    return SUCCESS;
}

u64 Device::limit(int limit) const {
    constexpr u64 OTHERS[] = {0, 1 << 20, 8 << 20};  // of printf and of malloc on the device
    return limit == 0 ? stack_bytes_ : limit < 3 ? OTHERS[limit] : 0;
}

void Device::refuse_managed(const char* variable) {
    managed_ = variable_name(variable);
}

void Device::finish(Launch& launch) {
    executed = launch.executed;
    executed_lanes += launch.executed_lanes;
    if (!launch.printed.empty()) {
        std::fwrite(launch.printed.data(), 1, launch.printed.size(), stdout);
        std::fflush(stdout);
    }
    if (!launch.finding) return;
    keep(*launch.finding);
    dead_ = true;
}

}  // namespace sim
