#include "device.h"

#include <algorithm>
#include <cstdio>

#include "occupancy.h"

#include "traces.h"

namespace sim {

namespace {

constexpr Card H200{
    "NVIDIA H200 (simulated)", 9, 0, 132, u64(141) << 30, 50 << 20, 233472, 232448, 2048, 32, 1980000, 3201000, 6144};
constexpr Card A100{
    "NVIDIA A100 (simulated)", 8, 0, 108, u64(80) << 30, 40 << 20, 167936, 166912, 2048, 32, 1410000, 1593000, 5120};
constexpr Card ADA{
    "NVIDIA L40S (simulated)", 8, 9, 142, u64(48) << 30, 96 << 20, 102400, 101376, 1536, 24, 2520000, 9001000, 384};

struct Architecture {
    const char* digits;
    const Card* card;
};
constexpr Architecture ARCHITECTURES[] = {{"80", &A100}, {"86", &ADA}, {"89", &ADA}};

constexpr u64 PARAMETERS_MOST = 32764;  // bytes; CUDA C++ Programming Guide 13.0

}  // namespace

Device& Device::get() {
    static Device device;
    return device;
}

void Device::load(std::string ptx, std::string source, const std::string& arch, int threads) {
    card_ = &H200;
    for (auto& known : ARCHITECTURES)
        if (arch.find(known.digits) != std::string::npos) card_ = known.card;
    source_ = std::move(source);
    threads_ = std::max(threads, 1);
    memory.shrink(0);
    programs_.clear();
    undecodable_.clear();
    addresses_.clear();
    module_ = ptx::parse(std::move(ptx));
    memory.map(0, 0, Use::parameter, "the kernel's parameters", 0, nullptr);
    place_variables();
    permanent_windows_ = memory.size();
}

void Device::place_variables() {
    for (const ptx::Variable& v : module_->variables) {
        const bool constant = v.space == ptx::Space::constant;
        if (v.space != ptx::Space::global && !constant) continue;
        Window& window = memory.allocate(
            v.bytes, 0, constant ? Use::constant : Use::variable, variable_name(std::string(v.name)), 0, true);
        window.writable = !constant;
        addresses_[v.name] = window.base;
    }
    for (const ptx::Variable& v : module_->variables) {
        const auto found = addresses_.find(v.name);
        if (found != addresses_.end()) initialise(v, *memory.find(found->second));
    }
}

void Device::initialise(const ptx::Variable& v, Window& window) {
    u64 at = 0;
    for (const ptx::Initializer& value : v.values) {
        u64 bits = value.bits;
        const auto symbol = addresses_.find(value.symbol);
        if (symbol != addresses_.end()) bits += symbol->second;
        if (!value.symbol.empty()) bits += function_address(*module_, value.symbol);
        if (at + value.size <= window.bytes) std::memcpy(window.data + at, &bits, value.size);
        at += value.size;
    }
}

// ---- one call

void Device::begin(u64 seed, double time_limit_s) {
    end();
    seed_ = seed;
    time_limit_s_ = time_limit_s;
    const auto limit = std::chrono::duration<double>(std::min(time_limit_s, 1e6));
    deadline_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
    findings.clear();
    watch.clear();
    dead_ = false;
    error_ = SUCCESS;
    stack_bytes_ = STACK_BYTES;
    counting_ = false;
    counted_.clear();
    if (!managed_.empty())
        keep(without_place(
            "unsupported", "the __managed__ variable " + managed_ +
                               ": memory that host and device share is not supported by the "
                               "simulator; use __device__ and cudaMemcpyToSymbol"));
    allocations_ = executed = executed_lanes = launches = 0;
}

u64 Device::add_buffer(const std::string& name, bool input, u32 itemsize, u64 bytes, u64 offset, const u8* data) {
    if (input) return memory.map(bytes, offset, Use::input, name, itemsize, data).base;
    Window& window = memory.allocate(bytes, offset, Use::output, name, itemsize, false);
    if (bytes) std::memcpy(window.data, data, bytes);
    return window.base;
}

void Device::end() {
    memory.shrink(permanent_windows_);
}

void Device::keep(Finding finding) {
    constexpr size_t MOST = 8;
    for (const Finding& known : findings)
        if (known.kind == finding.kind && known.message == finding.message && known.line == finding.line) return;
    if (findings.size() < MOST) findings.push_back(std::move(finding));
}

Finding Device::without_place(const std::string& kind, const std::string& message) const {
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
    const int error = error_;
    if (!dead_) error_ = SUCCESS;
    return error;
}

// ---- kernels

Function* Device::function(const void* host) {
    const auto found = functions_.find(host);
    return found == functions_.end() ? nullptr : &found->second;
}

Window* Device::variable(const void* host) {
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
        keep(without_place("unsupported", "the kernel " + demangled(function.name) + " is not in the PTX"));
        return nullptr;
    }
    try {
        Decoder decoder(*module_, addresses_);
        return &(programs_[function.name] = decoder.decode(module_->functions[index->second]));
    } catch (const Unsupported& e) {
        Finding finding = without_place("unsupported", std::string(e.what()) + " is not supported by the simulator");
        const SourceLine where = source_line(*module_, e.location, source_);
        finding.kernel = demangled(function.name);
        finding.file = where.file;
        finding.line = where.line;
        keep(finding);
        return nullptr;
    }
}

u64 Device::shared_limit(const Function& function) const {
    return function.dynamic_shared_limit;
}

bool Device::refuse(const Program& p, const Function& f, const Geometry& g, std::string* why, int* error) const {
    const u64 threads = u64(g.block[0]) * g.block[1] * g.block[2];
    const u64 shared = p.static_shared + g.dynamic_shared;
    const auto text = [](const u32* v) {
        return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
    };
    *error = INVALID_CONFIGURATION;
    if (threads > THREADS_PER_BLOCK)
        *why = "a block of " + std::to_string(threads) + " threads; the limit is 1024";
    else if (threads == 0 || g.block[2] > 64)
        *why = "a block of " + text(g.block) +
               " threads; each dimension must be at least 1 and at most "
               "(1024,1024,64)";
    else if (g.grid[0] == 0 || g.grid[1] == 0 || g.grid[2] == 0)
        *why = "a grid of " + text(g.grid) + " blocks; each dimension must be at least 1";
    else if (g.grid[0] > 0x7fffffffu || g.grid[1] > 65535 || g.grid[2] > 65535)
        *why = "a grid of " + text(g.grid) + " blocks; the limit is (2147483647,65535,65535)";
    else if (p.limits.required[0] && !std::equal(g.block, g.block + 3, p.limits.required))
        *why = "a block of " + text(g.block) + " threads; the kernel requires " + text(p.limits.required);
    if (!why->empty()) return true;
    *error = INVALID_VALUE;
    const u64 most = std::max(SHARED_PER_BLOCK, p.static_shared + f.dynamic_shared_limit);
    if (shared > card_->shared_per_block_optin)
        *why = std::to_string(shared) + " bytes of shared memory a block; the card has " +
               std::to_string(card_->shared_per_block_optin);
    else if (shared > most)
        *why = std::to_string(shared) + " bytes of shared memory a block (" + std::to_string(p.static_shared) +
               " static, " + std::to_string(g.dynamic_shared) + " dynamic); the limit is " + std::to_string(most) +
               " until "
               "cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize) "
               "raises it";
    if (!why->empty()) return true;
    *error = LAUNCH_OUT_OF_RESOURCES;
    if (threads > p.limits.max_threads)
        *why = "a block of " + std::to_string(threads) + " threads; __launch_bounds__ of the kernel allows " +
               std::to_string(p.limits.max_threads);
    return !why->empty();
}

std::vector<u8> Device::pack(const Program& p, void** arguments) const {
    std::vector<u8> bytes(std::min(p.parameter_bytes, PARAMETERS_MOST) + 16);
    for (size_t i = 0; i < p.parameters.size(); ++i) {
        const Extent& e = p.parameters[i];
        if (e.offset + e.bytes <= bytes.size()) std::memcpy(bytes.data() + e.offset, arguments[i], e.bytes);
    }
    return bytes;
}

// A cooperative launch needs all of its blocks on the card at once.
bool Device::refuse_cooperative(const Program& p, const Geometry& g, std::string* why, int* error) const {
    const u64 blocks = u64(g.grid[0]) * g.grid[1] * g.grid[2], threads = u64(g.block[0]) * g.block[1] * g.block[2];
    const u64 each = resident_blocks(*card_, p, threads, g.dynamic_shared), most = each * u64(card_->multiprocessors);
    if (blocks <= most) return false;
    *error = COOPERATIVE_LAUNCH_TOO_LARGE;
    *why = std::to_string(blocks) + " blocks cooperatively, but only " + std::to_string(most) +
           " are resident at once (" + std::to_string(each) + " on each of " + std::to_string(card_->multiprocessors) +
           " multiprocessors)";
    return true;
}

int Device::launch(const void* host, const Geometry& geometry, void** arguments, bool cooperative) {
    if (dead_) return fail(ILLEGAL_ADDRESS);
    Function* f = function(host);
    if (!f) return fail(INVALID_DEVICE_FUNCTION);
    const Program* p = program(*f);
    if (!p) return fail(NO_KERNEL_IMAGE);
    std::string why;
    int error = SUCCESS;
    if (refuse(*p, *f, geometry, &why, &error) || (cooperative && refuse_cooperative(*p, geometry, &why, &error))) {
        Finding finding = without_place("launch failed", p->name + " is launched with " + why);
        finding.kernel = p->name;
        keep(finding);
        return fail(error);
    }
    Launch launch;
    launch.program = p;
    launch.memory = &memory;
    launch.source = source_;
    std::copy(geometry.grid, geometry.grid + 3, launch.grid);
    std::copy(geometry.block, geometry.block + 3, launch.block);
    launch.dynamic_shared = geometry.dynamic_shared;
    launch.seed = seed_ * 0x100000001b3u + launches++;
    launch.threads = threads_;
    if (counting_) count(launch);
    if (cooperative) launch.workspace = grid_workspace();
    launch.parameters = pack(*p, arguments);
    launch.deadline = deadline_;
    launch.time_limit_s = time_limit_s_;
    Window& parameters = *memory.find(GLOBAL_ORIGIN);
    parameters.data = launch.parameters.data();
    parameters.bytes = p->parameter_bytes;
    Traces traces(memory.size(), p->global_shift, p->fences, launch.threads > 1 && launch.blocks() > 1);
    if (launch.blocks() <= TRACE_BLOCKS) launch.traces = &traces;
    if (!watch.empty()) launch.watch = &watch;
    run_grid(launch);
    parameters.data = nullptr;
    finish(launch);
    return dead_ ? fail(ILLEGAL_ADDRESS) : SUCCESS;
}

// What grid.sync() counts its arrivals in: its size and one word, as the driver's.
u64 Device::grid_workspace() {
    constexpr u64 BYTES = 8;
    Window& window = memory.allocate(BYTES, 0, Use::allocation, "the grid's barrier", 4, true);
    return window.base;
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
        out += (out.empty() ? "" : ",") + json(*c.counters, *c.plain, source_, c.launches);
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
    executed += launch.executed;
    executed_lanes += launch.executed_lanes;
    if (!launch.printed.empty()) {
        std::fwrite(launch.printed.data(), 1, launch.printed.size(), stdout);
        std::fflush(stdout);
    }
    if (!launch.finding) return;
    keep(*launch.finding);
    dead_ = true;
}

// ---- memory on behalf of the host

int Device::allocate(void** pointer, u64 bytes) {
    if (bytes > card_->global_bytes) return fail(OUT_OF_MEMORY);
    try {
        const std::string name = "cudaMalloc #" + std::to_string(++allocations_);
        *pointer =
            bytes ? reinterpret_cast<void*>(memory.allocate(bytes, 0, Use::allocation, name, 0, false).base) : nullptr;
    } catch (const std::bad_alloc&) {
        return fail(OUT_OF_MEMORY);
    }
    return SUCCESS;
}

int Device::release(void* pointer) {
    if (!pointer) return SUCCESS;
    Window* window = is_device_address(pointer) ? memory.find(reinterpret_cast<u64>(pointer)) : nullptr;
    if (!window || window->freed || window->use != Use::allocation || window->base != reinterpret_cast<u64>(pointer))
        return fail(INVALID_VALUE);
    memory.release(*window);
    return SUCCESS;
}

// The window of a device range, or null with a finding.
Window* Device::range(const char* what, const void* pointer, u64 bytes, const char* verb) {
    const u64 address = reinterpret_cast<u64>(pointer);
    Window* window = memory.find(address);
    std::string message;
    if (!window || window->freed) {
        message = std::string(what) + " " + verb + " " + plural(bytes, "byte") + " where no buffer is";
    } else if (
        address < window->base || address - window->base > window->bytes ||
        window->bytes - (address - window->base) < bytes) {
        message = std::string(what) + " " + verb + " " + plural(bytes, "byte") + " at byte " +
                  std::to_string(s64(address - window->base)) + " of " + window->name + ", which has " +
                  plural(window->bytes, "byte");
    }
    if (message.empty()) return window;
    Finding finding = without_place("out of bounds", message);
    if (window) finding.buffer = window->name;
    keep(finding);
    return nullptr;
}

int Device::copy(const char* what, void* to, const void* from, u64 bytes) {
    if (dead_) return fail(ILLEGAL_ADDRESS);
    if (bytes == 0) return SUCCESS;
    Window *target = nullptr, *origin = nullptr;
    if (is_device_address(to) && !(target = range(what, to, bytes, "writes"))) return fail(INVALID_VALUE);
    if (is_device_address(from) && !(origin = range(what, from, bytes, "reads"))) return fail(INVALID_VALUE);
    if (target && target->use == Use::input) {
        Finding finding =
            without_place("modified its input", std::string(what) + " writes " + target->name + ", which is an input");
        finding.buffer = target->name;
        keep(finding);
        return fail(INVALID_VALUE);
    }
    watch.note(what, reinterpret_cast<u64>(to), bytes);
    const u64 write_at = target ? reinterpret_cast<u64>(to) - target->base : 0;
    const u64 read_at = origin ? reinterpret_cast<u64>(from) - origin->base : 0;
    std::memmove(target ? target->data + write_at : to, origin ? origin->data + read_at : from, bytes);
    const u8* shadow = origin && origin->shadow ? origin->shadow + read_at : nullptr;
    if (target && target->shadow && shadow)
        std::memmove(target->shadow + write_at, shadow, bytes);
    else if (target && target->shadow)
        std::memset(target->shadow + write_at, 1, bytes);
    if (!target && shadow && std::count(shadow, shadow + bytes, 0)) {
        Finding finding = without_place(
            "uninitialised", std::string(what) + " reads " + plural(bytes, "byte") + " of " + origin->name +
                                 ", not all of which were written");
        finding.buffer = origin->name;
        keep(finding);
    }
    return SUCCESS;
}

int Device::fill(const char* what, void* to, int value, u64 bytes) {
    if (dead_) return fail(ILLEGAL_ADDRESS);
    if (bytes == 0) return SUCCESS;
    if (!is_device_address(to)) return fail(INVALID_VALUE);
    Window* target = range(what, to, bytes, "writes");
    if (!target) return fail(INVALID_VALUE);
    if (!target->writable) {
        Finding finding =
            without_place("modified its input", std::string(what) + " writes " + target->name + ", which is an input");
        finding.buffer = target->name;
        keep(finding);
        return fail(INVALID_VALUE);
    }
    const u64 at = reinterpret_cast<u64>(to) - target->base;
    watch.note(what, reinterpret_cast<u64>(to), bytes);
    std::memset(target->data + at, value, bytes);
    if (target->shadow) std::memset(target->shadow + at, 1, bytes);
    return SUCCESS;
}

}  // namespace sim
