#include "routes.h"

#include <algorithm>
#include <cstring>

#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u64 MOST_WORDS = u64(1) << 25;  // that are noted in a call
constexpr size_t MOST_NODES = 1 << 14;
constexpr size_t MOST_WAYS = 4;
constexpr double MOST_PATHS = 1 << 20;

bool is_written(const char* access) {
    return access[0] == 'w' || access[0] == 'a';  // or updated
}

bool begins(const std::string& text, const char* prefix) {
    return text.rfind(prefix, 0) == 0;
}

// The registers that an instruction sets, the first of its operands, and those that it makes them of.
struct Registers {
    int results = 0, first = 0, last = 0;
};

Registers registers_of(const Instruction& in) {
    const OpcodeEntry& entry = *in.entry;
    const int count = entry.operation.signature.count;
    if (entry.lower == lower_positional) return {1, 1, count};
    if (entry.lower == lower_vector_copy) return {1, 1, 2};
    if (entry.lower == lower_video) return {1, 1, 4};
    if (entry.lower == lower_setp || entry.lower == lower_set) return {2, 2, 4 + (entry.option ? 1 : 0)};
    if (entry.lower == lower_vector_move)
        return entry.form.find(".pack") != std::string::npos ? Registers{1, 1, count}
                                                             : Registers{count - 1, count - 1, count};
    if (entry.lower == lower_load) return {count, 0, 0};
    if (entry.lower == lower_store) return {0, 0, count};
    if (entry.lower == lower_atomic || entry.lower == lower_reduction) return {1, 1, count};
    if (entry.lower == lower_collective) return {1, 2, count - 1};
    if (begins(entry.form, "ldmatrix")) return {entry.option, 0, 0};
    if (begins(entry.form, "stmatrix")) return {0, 0, entry.option};
    return {};
}

bool is_product(const Instruction& in) {
    const std::string& form = in.entry->form;
    return begins(form, "mma") || begins(form, "wmma.mma") || begins(form, "wgmma.mma");
}

u8 bytes_of(const Instruction& in, int operand) {
    const Signature& signature = in.entry->operation.signature;
    return operand < signature.count ? signature.shape[operand].bytes : 4;  // of a matrix
}

// What a lane's register holds, in a word: two values that differ hardly ever have the same.
u32 word_of(const Warp& warp, const Instruction& in, int operand, int lane) {
    const s32 row = in.operand[operand];
    const u8 bytes = bytes_of(in, operand);
    if (!bytes) return warp.predicate(row) >> lane & 1;
    u32 parts[4] = {};
    std::memcpy(parts, warp.row<const u8>(row) + lane * bytes, bytes);
    return parts[0] ^ parts[1] * 0x9e3779b1u ^ parts[2] * 0x85ebca6bu ^ parts[3] * 0xc2b2ae35u;
}

// The lane whose value a shuffle gives: PTX ISA 9.7.9.6.
int shuffled_from(const Warp& warp, const Instruction& in, int lane) {
    const std::string& form = in.entry->form;
    const s32 offset = s32(warp.row<const u32>(in.operand[3])[lane] & 31);
    const s32 c = s32(warp.row<const u32>(in.operand[4])[lane]), clamp = c & 31, segment = c >> 8 & 31;
    const s32 top = (lane & segment) | (clamp & ~segment);
    const bool up = form.find(".up") != std::string::npos;
    const s32 from = up                                        ? lane - offset
                     : form.find(".down") != std::string::npos ? lane + offset
                     : form.find(".bfly") != std::string::npos ? lane ^ offset
                                                               : (lane & segment) | (offset & ~segment);
    return (up ? from >= top : from <= top) ? from : lane;
}

u64 bits(u32 first, u32 count) {
    return (count >= 64 ? ~u64(0) : (u64(1) << count) - 1) << first;
}

bool transposes(const Instruction& in) {
    return in.entry->form.find(".trans") != std::string::npos;
}

}  // namespace

bool Routes::is_told(const Instruction& in) {
    return registers_of(in).results > 0 || is_product(in);
}

void Routes::begin(bool first) {
    if (first) warps_.clear(), unknown_ = false;
    for (auto& [key, known] : warps_) known.next = 0, known.rows.clear(), known.loads.clear();
    first_ = first;
    multiplies_ = false;
    launch_ = words_ = 0;
    memory_.clear();
    nodes_.clear();
}

void Routes::clear() {
    begin(true);
    nodes_.shrink_to_fit();
}

void Routes::begin_launch(const Program& program) {
    ++launch_;
    multiplies_ |= program.multiplies;
}

Routes::OfWarp& Routes::of(const Warp& warp) {
    const u32* grid = warp.launch->grid;
    const u32* at = warp.block->index;
    return warps_[{launch_, at[0] + u64(grid[0]) * (at[1] + u64(grid[1]) * at[2]), warp.index}];
}

Routes::Address Routes::byte(const Warp& warp, bool shared, u64 address) const {
    const u32* grid = warp.launch->grid;
    const u32* at = warp.block->index;
    const u64 block = at[0] + u64(grid[0]) * (at[1] + u64(grid[1]) * at[2]);
    return {shared ? (launch_ << 40) + block + 1 : 0, address};
}

void Routes::add_row(const OfWarp& known, s32 row, int lane, std::vector<u32>& from) const {
    const auto found = known.rows.find(row);
    if (found != known.rows.end() && found->second.lanes >> lane & 1) from.push_back(found->second.node[lane]);
}

// Each node once: several bytes of one value have the same.
void Routes::add_bytes(const Warp& warp, const Moved& moved, u64 chosen, std::vector<u32>& from) const {
    for (u32 i = 0; i < moved.bytes; ++i) {
        if (!(chosen & moved.changed) || !(chosen & moved.changed & bits(i, 1))) continue;
        const auto found = memory_.find(byte(warp, moved.shared, moved.address + i));
        if (found == memory_.end()) continue;
        if (std::find(from.begin(), from.end(), found->second) == from.end()) from.push_back(found->second);
    }
}

u32 Routes::add(
    const Warp& warp, u32 pc, int lane, const char* access, std::string place, std::vector<u32> from, bool root) {
    if (nodes_.size() >= MOST_NODES || (from.empty() && !root)) {
        unknown_ = true;
        return NONE;
    }
    Node node;
    node.launch = launch_, node.pc = pc, node.access = access, node.place = std::move(place);
    node.site = warp.block->site(warp, pc, lane);
    node.paths = root ? 1 : 0;
    for (const u32 each : from) {
        nodes_[each].used = true;
        node.paths = std::min(node.paths + nodes_[each].paths, MOST_PATHS);
    }
    node.from = std::move(from);
    nodes_.push_back(std::move(node));
    return u32(nodes_.size() - 1);
}

// The nodes of what a lane writes to memory.
std::vector<u32> Routes::stored(
    const Warp& warp, const OfWarp& known, const Instruction& in, const Moved& moved) const {
    std::vector<u32> from;
    const auto [results, first, last] = registers_of(in);
    if (begins(in.entry->form, "stmatrix")) {
        for (u32 i = 0; i < moved.bytes; ++i) {  // a lane names a row of eight elements, which others hold
            if (!(moved.changed & bits(i, 1))) continue;
            const int row = moved.lane % 8, column = int(i / 2);
            std::vector<u32> one;
            const int lane = transposes(in) ? column * 4 + row / 2 : row * 4 + column / 2;
            add_row(known, in.operand[moved.lane / 8], lane, one);
            for (const u32 each : one)
                if (std::find(from.begin(), from.end(), each) == from.end()) from.push_back(each);
        }
        return from;
    }
    u32 begin = 0;
    for (int i = first; i < last; ++i) {
        const u32 bytes = bytes_of(in, i);
        if (moved.access == Access::atomic || (moved.changed & bits(begin, bytes)))
            add_row(known, in.operand[i], moved.lane, from);
        begin += bytes;
    }
    if (moved.access == Access::atomic) add_bytes(warp, moved, ~u64(0), from);
    return from;
}

void Routes::access(const Warp& warp, const Moved& moved, const std::string& place) {
    if (first_ || unknown_) return;
    OfWarp& known = of(warp);
    const Instruction& in = warp.block->program->plain->code[moved.pc];
    if (moved.access == Access::read) {
        if (moved.changed) known.loads[moved.lane] = {moved, place, NONE};
        return;
    }
    const bool split = in.entry->lower == lower_store && !moved.landed;  // each of its registers has a value of its own
    const u32 width = split ? std::max<u32>(bytes_of(in, 0), 1) : moved.bytes;
    for (u32 begin = 0; begin < moved.bytes && (moved.changed || !memory_.empty()); begin += width) {
        Moved part = moved;
        part.changed &= bits(begin, width);
        u32 node = NONE;
        if (part.changed) {
            const char* access = moved.access == Access::atomic ? "atomic" : "write";
            std::vector<u32> from;
            if (!moved.landed) from = stored(warp, known, in, part);
            node = add(warp, moved.pc, moved.lane, access, place, std::move(from), moved.landed);
            if (unknown_) return;
            if (moved.access == Access::atomic) known.loads[moved.lane] = {moved, place, node};
        }
        for (u32 i = begin; i < begin + width; ++i) {
            const Address at = byte(warp, moved.shared, moved.address + i);
            if (part.changed & bits(i, 1))
                memory_[at] = node;
            else
                memory_.erase(at);
        }
    }
}

// The nodes of what an instruction computes in a lane.
std::vector<u32> Routes::operands(const Warp& warp, const OfWarp& known, const Instruction& in, int lane) const {
    std::vector<u32> from;
    const auto [results, first, last] = registers_of(in);
    const std::string& form = in.entry->form;
    if (begins(form, "shfl")) {
        add_row(known, in.operand[2], shuffled_from(warp, in, lane), from);
        return from;
    }
    if (in.entry->lower == lower_collective) {
        for (int other = 0; other < LANES; ++other) add_row(known, in.operand[2], other, from);
        return from;
    }
    for (int i = first; i < last; ++i) {
        const bool chooses = begins(form, "selp") && i < 3;
        if (chooses && (warp.predicate(in.operand[3]) >> lane & 1) != (i == 1)) continue;
        add_row(known, in.operand[i], lane, from);
    }
    return from;
}

// The node of what a lane has loaded: of memory that nothing in the call has changed, it is the element itself.
u32 Routes::loaded(const Warp& warp, OfWarp& known, const Instruction& in, int result, int lane) {
    const bool matrix = begins(in.entry->form, "ldmatrix");
    std::vector<u32> from;
    const Load* load = nullptr;
    for (int half = 0; half < (matrix ? 2 : 1); ++half) {
        const int row = lane / 4, column = lane % 4 * 2 + half;
        const int namer = !matrix ? lane : result * 8 + (transposes(in) ? column : row);
        const auto found = known.loads.find(namer);
        if (found == known.loads.end()) continue;
        load = &found->second;
        const u32 bytes = matrix ? 2 : bytes_of(in, result);
        const u32 begin = matrix ? u32(transposes(in) ? row : column) * 2 : u32(result) * bytes;
        add_bytes(warp, load->moved, bits(begin, bytes), from);
    }
    if (!load) {
        unknown_ = true;
        return NONE;
    }
    if (load->node != NONE) return load->node;
    const bool root = from.empty() && !load->moved.shared;
    return add(warp, load->moved.pc, lane, "read", load->place, std::move(from), root);
}

// A product adds to registers what no one follows: none of them may have a node before.
void Routes::multiplied(const Warp& warp, const OfWarp& known, const Instruction& in) {
    const bool later = begins(in.entry->form, "wgmma");
    for (const auto& [row, lanes] : known.rows) unknown_ |= !later || warp.block->program->matrix_rows.count(row) > 0;
}

void Routes::results(const Warp& warp, const Instruction& in, Mask mask) {
    const int results = registers_of(in).results;
    if (unknown_) return;
    OfWarp& known = of(warp);
    if (is_product(in)) return multiplied(warp, known, in);
    if (!results) return;
    std::vector<u32> words = {warp.here, mask};
    for (int i = 0; i < results; ++i) each_lane(mask, [&](int l) { words.push_back(word_of(warp, in, i, l)); });
    if (first_) {
        words_ += words.size();
        unknown_ = words_ > MOST_WORDS;
        known.first.insert(known.first.end(), words.begin(), words.end());
        return;
    }
    const u32* then = known.first.data() + known.next;
    known.next += words.size();
    if (known.next > known.first.size() || then[0] != words[0] || then[1] != words[1]) {
        unknown_ = true;
        return;
    }
    std::vector<Lanes> changed{size_t(results)};  // an operand may be a result, too
    const bool loads = in.check_access && in.entry->lower != lower_positional;
    size_t at = 2;
    for (int i = 0; i < results; ++i)
        each_lane(mask, [&](int l) {
            if (words[at] != then[at] && !unknown_) {
                changed[size_t(i)].lanes |= Mask(1) << l;
                changed[size_t(i)].node[l] =
                    loads ? loaded(warp, known, in, i, l)
                          : add(warp, warp.here, l, "result", "", operands(warp, known, in, l), false);
            }
            ++at;
        });
    known.loads.clear();
    for (int i = 0; i < results; ++i) {
        const Lanes& now = changed[size_t(i)];
        const auto found = known.rows.find(in.operand[i]);
        if (found == known.rows.end() && !now.lanes) continue;
        Lanes& row = known.rows[in.operand[i]];
        row.lanes = (row.lanes & ~mask) | now.lanes;
        each_lane(now.lanes, [&](int l) { row.node[l] = now.node[l]; });
        if (!row.lanes) known.rows.erase(in.operand[i]);
    }
}

// Which nodes the ends depend on, themselves included.
std::vector<char> Routes::behind(const std::vector<u32>& ends) const {
    std::vector<char> found(nodes_.size());
    for (const u32 end : ends) found[end] = 1;
    for (size_t i = nodes_.size(); i-- > 0;)  // a node is behind those that it comes from
        if (found[i])
            for (const u32 each : nodes_[i].from) found[each] = 1;
    return found;
}

// The values that the output ends with; if the accesses to it are not seen, all that the call ends with in memory.
std::vector<u32> Routes::ends_at(u64 focus, u32 bytes, bool* reached) const {
    std::set<u32> ends;
    for (u32 i = 0; i < bytes; ++i)
        if (const auto found = memory_.find({0, focus + i}); found != memory_.end()) ends.insert(found->second);
    *reached = !ends.empty();
    for (u32 i = 0; i < nodes_.size() && !*reached; ++i)
        if (!nodes_[i].used && is_written(nodes_[i].access)) ends.insert(i);
    return {ends.begin(), ends.end()};
}

// The nodes, by what a line does where it is called from, in the order of time.
std::vector<std::vector<u32>> Routes::sites_of(const std::vector<char>& chosen) const {
    std::map<std::tuple<u64, std::string, u32, std::vector<u32>>, size_t> known;
    std::vector<std::vector<u32>> sites;
    for (u32 i = 0; i < nodes_.size(); ++i) {
        const Node& node = nodes_[i];
        if (!chosen[i]) continue;
        const auto [at, added] =
            known.insert({{node.launch, node.access, node.site.line, node.site.callers}, sites.size()});
        if (added) sites.emplace_back();
        sites[at->second].push_back(i);
    }
    return sites;
}

// The sites on the way to each end, or, to one that an output ends with, to each value that comes together last.
std::set<std::vector<size_t>> Routes::ways_to(
    std::vector<u32> ends, bool reached, const std::vector<std::vector<u32>>& sites) const {
    while (reached && ends.size() == 1 && !nodes_[ends[0]].from.empty()) ends = nodes_[ends[0]].from;
    std::set<std::vector<size_t>> ways;
    for (const u32 end : ends) {
        const std::vector<char> own = behind({end});
        std::vector<size_t> way;
        for (size_t i = 0; i < sites.size(); ++i)
            if (std::any_of(sites[i].begin(), sites[i].end(), [&](u32 node) { return own[node] != 0; }))
                way.push_back(i);
        ways.insert(std::move(way));
    }
    return ways;
}

std::string Routes::json(u64 focus, u32 bytes) const {
    if (first_ || unknown_ || nodes_.empty()) return {};
    for (const Node& node : nodes_)  // wgmma may read what a copy has put there
        if (multiplies_ && !node.used && node.from.empty() && is_written(node.access)) return {};
    bool reached = false;
    const std::vector<u32> ends = ends_at(focus, bytes, &reached);
    if (ends.empty()) return {};
    const std::vector<std::vector<u32>> sites = sites_of(behind(ends));
    std::string text, listed;
    for (const std::vector<u32>& nodes : sites) {
        const Node& first = nodes_[nodes.front()];
        const auto roots = std::count_if(nodes.begin(), nodes.end(), [&](u32 i) { return nodes_[i].from.empty(); });
        text += std::string(text.empty() ? "" : ",") + "{\"access\":" + quoted(first.access) +
                ",\"place\":" + quoted(first.place) + ",\"beginnings\":" + std::to_string(roots) +
                ",\"by\":" + sim::json(first.site) + "}";
    }
    const std::set<std::vector<size_t>> ways = ways_to(ends, reached, sites);
    for (const std::vector<size_t>& way : ways) {
        std::string one;
        for (const size_t site : way) one += (one.empty() ? "" : ",") + std::to_string(site);
        listed += (listed.empty() ? "[" : ",[") + one + "]";
    }
    const double paths = reached && ends.size() == 1 ? nodes_[ends[0]].paths : 0;
    return "{\"sites\":[" + text + "],\"ways\":[" + (ways.size() > MOST_WAYS ? "" : listed) +
           "],\"paths\":" + std::to_string(u64(paths)) + ",\"reached\":" + (reached ? "true" : "false") + "}";
}

}  // namespace sim
