#include "counters.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "block.h"
#include "operation.h"
#include "check_access.h"

namespace sim {

namespace {

constexpr u32 SECTOR = 32, WAVEFRONT = 128, BANKS = 32;
constexpr size_t HITS = 1 << 20;  // addresses whose atomics are told apart

bool begins(std::string_view form, std::string_view words) {
    return form.substr(0, words.size()) == words && (form.size() == words.size() || form[words.size()] == '.');
}

u64 distinct(Mask mask, const u64* address) {
    u64 sorted[LANES];
    int count = 0;
    each_lane(mask, [&](int l) { sorted[count++] = address[l]; });
    std::sort(sorted, sorted + count);
    return u64(std::unique(sorted, sorted + count) - sorted);
}

u64 sectors_of(Mask mask, const u64* address, u32 bytes) {
    std::vector<u64> sectors;
    each_lane(mask, [&](int l) {
        for (u64 s = address[l] / SECTOR; s <= (address[l] + bytes - 1) / SECTOR; ++s) sectors.push_back(s);
    });
    std::sort(sectors.begin(), sectors.end());
    return u64(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

// Lanes that read one word of a bank are served at once; atomics on it are not.
u64 most_words_of_a_bank(Mask phase, const u64* address, u32 bytes, bool atomic) {
    std::vector<u64> words[BANKS];
    each_lane(phase, [&](int l) {
        for (u64 w = address[l] / 4; w <= (address[l] + bytes - 1) / 4; ++w) words[w % BANKS].push_back(w);
    });
    size_t most = 0;
    for (auto& bank : words) {
        std::sort(bank.begin(), bank.end());
        if (!atomic) bank.erase(std::unique(bank.begin(), bank.end()), bank.end());
        most = std::max(most, bank.size());
    }
    return most;
}

// Whether each lane wants what the lane `apart` from it wants, or one of the two wants nothing.
bool agree_in_pairs(Mask mask, const u64* address, int apart) {
    bool agree = true;
    each_lane(mask, [&](int l) { agree &= !(mask >> (l ^ apart) & 1) || address[l] == address[l ^ apart]; });
    return agree;
}

// As many as 128 bytes serve, so that a warp's float4 take four wavefronts by nature. A load of 8 or 16 bytes serves
// twice as many where all lanes agree with their neighbours, or all with the next but one: so did an H200 on 866
// patterns (l1tex__data_pipe_lsu_wavefronts_mem_shared; tests/sim_kernels/wavefronts.py).
u32 lanes_together(Mask mask, const u64* address, u32 bytes, bool is_load) {
    const u32 lanes = std::max(1u, std::min(u32(LANES), WAVEFRONT / std::max(bytes, 4u)));
    const bool in_pairs = agree_in_pairs(mask, address, 1) || agree_in_pairs(mask, address, 2);
    return is_load && bytes > 4 && in_pairs ? 2 * lanes : lanes;
}

}  // namespace

Wavefronts wavefronts_of(Mask mask, const u64* address, u32 bytes, Access access, bool is_load) {
    Wavefronts w{lanes_together(mask, address, bytes, is_load), 0, 0};
    for (u32 first = 0; first < LANES; first += w.together) {
        const Mask phase = mask & Mask(((u64(1) << w.together) - 1) << first);
        if (!phase) continue;
        w.count += most_words_of_a_bank(phase, address, bytes, access == Access::atomic);
        w.ideal += 1;
    }
    return w;
}

void Cost::add(const Cost& o) {
    executed += o.executed, lanes += o.lanes, divergent += o.divergent;
    requests += o.requests, sectors += o.sectors, ideal_sectors += o.ideal_sectors;
    accesses += o.accesses, wavefronts += o.wavefronts, ideal_wavefronts += o.ideal_wavefronts;
    bytes_read += o.bytes_read, bytes_written += o.bytes_written;
    tma_copies += o.tma_copies, tma_bytes += o.tma_bytes, tma_filled_bytes += o.tma_filled_bytes;
    box_rows += o.box_rows, phase_waits += o.phase_waits, open_phase_waits += o.open_phase_waits;
}

bool Sample::before(const Sample& other) const {
    const auto order = [](const Sample& s) { return std::tuple(s.block[2], s.block[1], s.block[0], s.warp); };
    return order(*this) < order(other);
}

void Counters::add(const Counters& other) {
    for (size_t i = 0; i < cost.size(); ++i) cost[i].add(other.cost[i]);
    for (auto& [address, count] : other.hits_)
        if (hits_.size() < HITS || hits_.count(address)) hits_[address] += count;
    for (auto& [place, sample] : other.samples) {
        const auto [known, is_new] = samples.try_emplace(place, sample);
        if (!is_new && sample.before(known->second)) known->second = sample;
    }
}

void Counters::clear() {
    std::fill(cost.begin(), cost.end(), Cost());
    hits_.clear();
    samples.clear();
}

void Counters::keep(
    const Warp& warp, bool is_shared, Mask mask, const u64* address, u32 bytes, u32 together, Access access) {
    Sample sample;
    std::copy(warp.block->index, warp.block->index + 3, sample.block);
    sample.warp = warp.index;
    const auto [known, is_new] = samples.try_emplace({warp.here, is_shared});
    if (!is_new && !sample.before(known->second)) return;
    sample.mask = mask, sample.bytes = bytes, sample.together = together, sample.access = access;
    std::copy(address, address + LANES, sample.address);
    known->second = sample;
}

void Counters::global(const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access) {
    keep(warp, false, mask, address, bytes, 0, access);
    Cost& c = cost[warp.here];
    const u64 wanted = u64(__builtin_popcount(mask)) * bytes;
    c.requests += 1;
    c.sectors += sectors_of(mask, address, bytes);
    c.ideal_sectors += (distinct(mask, address) * bytes + SECTOR - 1) / SECTOR;
    if (access != Access::write) c.bytes_read += wanted;
    if (access != Access::read) c.bytes_written += wanted;
}

void Counters::shared(const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access, bool is_load) {
    const Wavefronts w = wavefronts_of(mask, address, bytes, access, is_load);
    keep(warp, true, mask, address, bytes, w.together, access);
    Cost& c = cost[warp.here];
    c.accesses += 1;
    c.wavefronts += w.count;
    c.ideal_wavefronts += w.ideal;
}

void Counters::bulk(const Warp& warp, u64 address, u32 bytes, Access access) {
    Cost& c = cost[warp.here];
    c.requests += 1;
    c.sectors += (address + bytes - 1) / SECTOR - address / SECTOR + 1;
    c.ideal_sectors += (bytes + SECTOR - 1) / SECTOR;
    if (access != Access::write) c.bytes_read += bytes;
    if (access != Access::read) c.bytes_written += bytes;
}

void Counters::tma(const Warp& warp, u64 bytes, u64 filled, u64 rows) {
    Cost& c = cost[warp.here];
    c.tma_copies += 1;
    c.tma_bytes += bytes;
    c.tma_filled_bytes += filled;
    c.box_rows += rows;
}

// Each row is 16 bytes: four of the 32 banks.
void Counters::core_matrix(const Warp& warp, const u64* address) {
    constexpr u32 ROWS = 8, ROW = WAVEFRONT / ROWS;
    u64 rows[ROWS] = {};
    for (u32 i = 0; i < ROWS; ++i) rows[address[i] / ROW % ROWS] += 1;
    Cost& c = cost[warp.here];
    c.accesses += 1;
    c.wavefronts += *std::max_element(rows, rows + ROWS);
    c.ideal_wavefronts += 1;
}

void Counters::wait(const Warp& warp, bool open) {
    cost[warp.here].phase_waits += 1;
    cost[warp.here].open_phase_waits += open;
}

void Counters::hit(Mask mask, const u64* address) {
    each_lane(mask, [&](int l) {
        if (hits_.size() < HITS || hits_.count(address[l])) hits_[address[l]] += 1;
    });
}

u64 Counters::most_hits() const {
    u64 most = 0;
    for (auto& [address, count] : hits_) most = std::max(most, count);
    return most;
}

// ---- the counted program

namespace {

Mask guarded(const Warp& warp, const Instruction& plain, Mask group) {
    if (plain.guard < 0) return group;
    const Mask p = warp.predicate(plain.guard);
    return group & (plain.guard_negated ? ~p : p);
}

Cost& note(Warp& warp, Mask group, Mask mask) {
    Cost& cost = warp.block->counters->cost[warp.here];
    cost.executed += group != 0;
    cost.lanes += u64(__builtin_popcount(mask));
    return cost;
}

void count_next(Warp& warp, const Instruction& in, Mask group) {
    const Instruction& plain = plain_of(warp);
    const Mask mask = guarded(warp, plain, group);
    note(warp, group, mask);
    if (mask) plain.run(warp, in, mask);
}

void count_warp_sync(Warp& warp, const Instruction& in, Mask mask) {
    note(warp, mask, mask);
    plain_of(warp).run(warp, in, mask);
}

void count_branch(Warp& warp, const Instruction& in, Mask group) {
    const Mask mask = guarded(warp, plain_of(warp), group);
    note(warp, group, group).divergent += mask && mask != group;
    warp.move(group & ~mask, warp.here + 1);
    warp.move(mask, in.target);
}

void count_leave(Warp& warp, const Instruction& in, Mask group) {
    const Instruction& plain = plain_of(warp);
    const Mask mask = guarded(warp, plain, group);
    note(warp, group, mask);
    warp.move(group & ~mask, warp.here + 1);
    if (mask) plain.run(warp, in, mask);
}

struct Wrapper {
    Flow flow;
    Handler run;
    Flow becomes;
    bool guards;  // reads the guard itself
};
constexpr Wrapper WRAPPERS[] = {
    {Flow::next, count_next, Flow::next, true},
    {Flow::branch, count_branch, Flow::leave, true},
    {Flow::warp_sync, count_warp_sync, Flow::warp_sync, false},
    {Flow::leave, count_leave, Flow::leave, true},
};

// Global and shared memory are counted; parameters, constants and local memory are not.
Spread count_access(Warp& warp, const Instruction& in, Mask mask, u32 bytes, Access access, u8** at) {
    const Instruction& plain = plain_of(warp);
    const Spread spread = plain.check_access(warp, in, mask, bytes, access, at);
    u64 a[LANES];
    lane_addresses(warp, in, a);
    auto [global, shared] = spaces_of(plain.check_access, mask, a);
    const Allocation* allocation = global ? warp.launch->memory->find(a[__builtin_ctz(global)]) : nullptr;
    if (allocation && (allocation->kind == AllocationKind::parameter || allocation->kind == AllocationKind::constant))
        global = 0;
    Counters& counters = *warp.block->counters;
    if (global) counters.global(warp, global, a, bytes, access);
    if (shared) counters.shared(warp, shared, a, bytes, access, begins(plain.entry->form, "ld"));
    if (access == Access::atomic) counters.hit(global | shared, a);
    return spread;
}

}  // namespace

std::unique_ptr<Program> counted(const Program& plain) {
    auto program = std::make_unique<Program>(plain);
    program->plain = &plain;
    for (Instruction& in : program->code) {
        for (const Wrapper& wrapper : WRAPPERS) {
            if (wrapper.flow != in.flow) continue;
            in.run = wrapper.run;
            in.flow = wrapper.becomes;
            if (wrapper.guards) in.guard = -1;
            break;
        }
        if (in.check_access) in.check_access = count_access;
    }
    return program;
}

// ---- totals

namespace {

struct Class {
    std::string_view prefix;
    const char* name;
};
// By the first words of a form; arithmetic that is in none of them goes by its type.
constexpr Class CLASSES[] = {
    {"ld", "load"},      {"ldu", "load"},        {"ldmatrix", "load"},    {"wmma.load", "load"},
    {"st", "store"},     {"stmatrix", "store"},  {"wmma.store", "store"}, {"atom", "atomic"},
    {"red", "atomic"},   {"cp", "copy"},         {"mma", "tensor"},       {"wmma.mma", "tensor"},
    {"wgmma", "tensor"}, {"bra", "control"},     {"brx", "control"},      {"call", "control"},
    {"ret", "control"},  {"exit", "control"},    {"trap", "control"},     {"brkpt", "control"},
    {"bar", "barrier"},  {"tensormap", "store"}, {"barrier", "barrier"},  {"mbarrier", "barrier"},
    {"membar", "fence"}, {"fence", "fence"},     {"shfl", "warp"},        {"vote", "warp"},
    {"match", "warp"},   {"redux", "warp"},      {"elect", "warp"},       {"activemask", "warp"},
    {"cvt", "convert"},  {"cvta", "convert"},    {"mov", "move"},         {"selp", "move"},
    {"slct", "move"},    {"setp", "compare"},    {"set", "compare"},
};
constexpr std::string_view FLOATS[] = {"f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2"};

std::string_view last_word(std::string_view form) {
    return form.substr(form.rfind('.') + 1);
}

bool is_float(std::string_view form) {
    return std::find(std::begin(FLOATS), std::end(FLOATS), last_word(form)) != std::end(FLOATS);
}

const char* class_of(std::string_view form) {
    for (auto& known : CLASSES)
        if (begins(form, known.prefix)) return known.name;
    return is_float(form) ? "float" : "integer";
}

struct Work {
    std::string_view word;
    u64 operations;
};
constexpr Work WORK[] = {{"add", 1}, {"sub", 1}, {"mul", 1}, {"fma", 2}, {"mad", 2}};

// m16n8k16 -> 2 * 16 * 8 * 16, of a whole warp
u64 tensor_work(std::string_view form) {
    for (size_t m = form.find(".m"); m != std::string_view::npos; m = form.find(".m", m + 1)) {
        unsigned rows = 0, columns = 0, depth = 0;
        const std::string word(form.substr(m + 1, form.find('.', m + 1) - m - 1));
        if (std::sscanf(word.c_str(), "m%un%uk%u", &rows, &columns, &depth) == 3)
            return u64(2) * rows * columns * depth;
    }
    return 0;
}

u64 flops(std::string_view form, const Cost& cost) {
    if (begins(form, "wgmma")) return cost.executed * tensor_work(form) / 4;  // by each of four warps
    if (begins(form, "mma") || begins(form, "wmma.mma")) return cost.executed * tensor_work(form);
    if (!is_float(form)) return 0;
    const u64 elements = last_word(form).find("x2") != std::string_view::npos ? 2 : 1;
    for (auto& known : WORK)
        if (begins(form, known.word)) return cost.lanes * known.operations * elements;
    return 0;
}

bool is_internal(const OpcodeEntry* entry) {
    return !entry || begins(entry->form, "resize");
}

std::string field(const char* name, u64 value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(value);
}

std::string line_json(u32 line, const Cost& c) {
    return "{\"line\":" + std::to_string(line) + field("instructions", c.executed) + field("requests", c.requests) +
           field("sectors", c.sectors) + field("ideal_sectors", c.ideal_sectors) + field("accesses", c.accesses) +
           field("wavefronts", c.wavefronts) + field("ideal_wavefronts", c.ideal_wavefronts) +
           field("tma_bytes", c.tma_bytes) + field("phase_waits", c.phase_waits) +
           field("open_phase_waits", c.open_phase_waits) + "}";
}

u64 weight(const Cost& c) {
    return c.executed + c.sectors + c.wavefronts;
}

// The learner's line of an instruction; 0 where it is in another file.
u32 line_of(const Program& program, u32 pc, const std::string& source) {
    const SourceLine place = source_line(*program.module, program.code[pc].location, source);
    return place.file == source ? place.line : 0;
}

// The learner's lines that cost most, dearest first.
std::vector<std::pair<u32, Cost>> dearest(const Counters& counters, const Program& program, const std::string& source) {
    constexpr size_t MOST = 12;
    std::map<u32, Cost> costs;
    for (u32 pc = 0; pc < counters.cost.size(); ++pc) {
        if (is_internal(program.code[pc].entry) || !counters.cost[pc].executed) continue;
        if (const u32 line = line_of(program, pc, source)) costs[line].add(counters.cost[pc]);
    }
    std::vector<std::pair<u32, Cost>> sorted(costs.begin(), costs.end());
    std::stable_sort(
        sorted.begin(), sorted.end(), [](auto& a, auto& b) { return weight(a.second) > weight(b.second); });
    sorted.resize(std::min(sorted.size(), MOST));
    return sorted;
}

// Where the lanes go: bytes from the buffer's begin, or, for buffers that begin in the middle of one, from that of its
// first 128; in shared memory from the block's. null: the lane is not in it.
std::string sample_json(u32 line, bool is_shared, const Sample& sample, const Memory& memory) {
    constexpr const char* NAMES[] = {"read", "write", "atomic"};
    const Allocation* allocation = is_shared ? nullptr : memory.find(sample.address[__builtin_ctz(sample.mask)]);
    const u64 base = allocation ? allocation->base : 0;
    std::string at;
    for (int l = 0; l < LANES; ++l) {
        const u64 a = sample.address[l];
        const bool known = sample.mask >> l & 1 && (!allocation || memory.find(a) == allocation);
        at += (l ? "," : "") + (known ? std::to_string(s64(a - base + base % WAVEFRONT)) : "null");
    }
    return "{\"line\":" + std::to_string(line) + field("bytes", sample.bytes) + field("together", sample.together) +
           field("warp", sample.warp) + field("begin", base % WAVEFRONT) +
           field("itemsize", allocation ? allocation->itemsize : 0) + ",\"access\":\"" + NAMES[int(sample.access)] +
           "\",\"buffer\":" + (allocation ? quoted(allocation->name) : "null") + ",\"block\":" + triple(sample.block) +
           ",\"at\":[" + at + "]}";
}

// Of every instruction in the lines given, one access. Those of wmma, which are steps of one, are left out.
std::string samples_json(
    const Counters& counters, const Program& program, const Memory& memory, const std::string& source,
    const std::vector<std::pair<u32, Cost>>& lines) {
    std::string out;
    for (auto& [place, sample] : counters.samples) {
        const auto [pc, is_shared] = place;
        const u32 line = line_of(program, pc, source);
        const auto same = [line](auto& item) { return item.first == line; };
        if (std::none_of(lines.begin(), lines.end(), same) || begins(program.code[pc].entry->form, "wmma")) continue;
        out += (out.empty() ? "" : ",") + sample_json(line, is_shared, sample, memory);
    }
    return "[" + out + "]";
}

}  // namespace

std::string json(
    const Counters& counters, const Program& program, const Memory& memory, const std::string& source, u64 launches) {
    Cost all;
    u64 operations = 0, branches = 0;
    std::map<std::string, u64> classes;
    for (size_t pc = 0; pc < counters.cost.size(); ++pc) {
        const Instruction& in = program.code[pc];
        if (is_internal(in.entry)) continue;
        const Cost& cost = counters.cost[pc];
        all.add(cost);
        operations += flops(in.entry->form, cost);
        if (cost.executed) classes[class_of(in.entry->form)] += cost.executed;
        if (begins(in.entry->form, "bra")) branches += cost.executed;
    }
    std::string by_class;
    for (auto& [name, count] : classes)
        by_class += (by_class.empty() ? "\"" : ",\"") + name + "\":" + std::to_string(count);
    const auto lines = dearest(counters, program, source);
    std::string by_line;
    for (auto& [line, cost] : lines) by_line += (by_line.empty() ? "" : ",") + line_json(line, cost);
    return "{\"kernel\":\"" + program.name + "\"" + field("launches", launches) +
           field("warp_instructions", all.executed) + field("thread_instructions", all.lanes) + ",\"instructions\":{" +
           by_class + "}" + field("flops", operations) + field("bytes_read", all.bytes_read) +
           field("bytes_written", all.bytes_written) + field("global_requests", all.requests) +
           field("sectors", all.sectors) + field("ideal_sectors", all.ideal_sectors) +
           field("shared_requests", all.accesses) + field("wavefronts", all.wavefronts) +
           field("ideal_wavefronts", all.ideal_wavefronts) + field("tma_copies", all.tma_copies) +
           field("tma_bytes", all.tma_bytes) + field("tma_filled_bytes", all.tma_filled_bytes) +
           field("box_rows", all.box_rows) + field("phase_waits", all.phase_waits) +
           field("open_phase_waits", all.open_phase_waits) + field("branches", branches) +
           field("divergent_branches", all.divergent) + field("barriers", classes["barrier"]) +
           field("atomics", classes["atomic"]) + field("most_atomics_on_one_address", counters.most_hits()) +
           ",\"lines\":[" + by_line + "],\"samples\":" + samples_json(counters, program, memory, source, lines) + "}";
}

}  // namespace sim
