// mbarrier_notes: what a finding says of mbarriers: what a phase got and lacks, and which wait keeps the others waiting
#include <algorithm>
#include <set>

#include "cluster.h"
#include "mbarrier.h"

namespace sim {

namespace {

constexpr size_t OTHERS = 2;  // waits that a deadlock names beside its own
constexpr const char* LAST_OF_WARP = "the last wait of this thread's warp for an mbarrier";

// Lanes of a warp that wait at an mbarrier of their block.
struct Waiter {
    const Block* block;
    u64 address;
    const MBarrier* barrier;
    const Warp* warp;
    Mask lanes;

    int lane() const { return __builtin_ctz(lanes); }
    std::string thread() const {
        const std::string of = block->cluster->blocks.size() > 1 ? " of block rank " + std::to_string(block->rank) : "";
        return block->thread(warp->thread(lane())) + of;
    }
    std::string line() const { return block->line_words(warp->pc[lane()]); }
    bool is_at_the_same(const Waiter& other) const { return block == other.block && address == other.address; }
};

using Waiters = std::vector<Waiter>;

// Those of `first` come first.
Waiters waiters_of(const Block& first) {
    std::vector<const Block*> blocks{&first};
    for (auto& block : first.cluster->blocks)
        if (block.get() != &first) blocks.push_back(block.get());
    Waiters found;
    for (const Block* block : blocks)
        for (auto& [address, barrier] : block->mbarriers.all())
            for (const Warp& warp : block->warps)
                if (const Mask lanes = barrier.waiting[warp.index])
                    found.push_back({block, address, &barrier, &warp, lanes});
    return found;
}

std::string lacks(const MBarrier& barrier) {
    std::string words;
    if (barrier.pending) words = plural(u64(std::max<s64>(barrier.pending, 0)), "arrival");
    if (barrier.bytes > 0) words += (words.empty() ? "" : " and ") + plural(u64(barrier.bytes), "byte");
    return words;
}

std::string line_of_init(const Block& block, const MBarrier& barrier) {
    return block.line_words(barrier.initialising.pc);
}

// What this phase needs of others as an earlier one got it: the last one of the mbarrier, or else of one that the same
// line has initialised.
struct Example {
    const Phase* phase = nullptr;
    u64 address = 0;  // of its mbarrier
};

Example example_for(const Waiter& at) {
    const MBarrier& mine = *at.barrier;
    if (mine.phase) return {mine.phases.find(mine.phase - 1), at.address};
    for (auto& [address, other] : at.block->mbarriers.all())
        if (other.phase && line_of_init(*at.block, other) == line_of_init(*at.block, mine))
            return {other.phases.find(other.phase - 1), address};
    return {};
}

bool adds(const PhaseStep& step, const PhaseStep& like) {
    return (like.arrivals && step.arrivals) || (like.came && step.came);
}

// The lanes of a step of an earlier phase that have not done the same in this one.
Mask still_to_come(const Phase& now, const PhaseStep& before) {
    Mask lanes = before.lanes;
    for (const PhaseStep& step : now.steps)
        if (step.rank == before.rank && step.warp == before.warp && adds(step, before)) lanes &= ~step.lanes;
    return lanes;
}

// The wait that keeps those away who made the phase before end; null: none is known.
const Waiter* kept_by(const Waiters& waiters, const Waiter& at) {
    const Example before = example_for(at);
    if (!before.phase) return nullptr;
    for (const PhaseStep& step : before.phase->steps) {
        const Mask lanes = still_to_come(at.barrier->phases.now(), step);
        for (const Waiter& other : waiters)
            if (other.block->rank == step.rank && other.warp->index == step.warp && (other.lanes & lanes) &&
                !other.is_at_the_same(at))
                return &other;
    }
    return nullptr;
}

// From wait to wait to the one that no other keeps from ending. In a circle: to one that has got a part of what it
// needs, if there is one, or else to one that nothing has ever arrived at.
const Waiter& root_of(const Waiters& waiters) {
    std::vector<const Waiter*> chain{&waiters.front()};
    for (;;) {
        const Waiter* next = kept_by(waiters, *chain.back());
        if (!next) return *chain.back();
        const auto seen =
            std::find_if(chain.begin(), chain.end(), [&](const Waiter* each) { return each->is_at_the_same(*next); });
        if (seen == chain.end()) {
            chain.push_back(next);
            continue;
        }
        const auto part = std::find_if(
            seen, chain.end(), [](const Waiter* each) { return each->barrier->phases.now().arrivals() > 0; });
        if (part != chain.end()) return **part;
        const auto left_out = std::find_if(seen, chain.end(), [](const Waiter* each) {
            const Example before = example_for(*each);
            return before.phase && before.address != each->address && !each->barrier->phases.now().arrivals();
        });
        return left_out == chain.end() ? **seen : **left_out;
    }
}

std::string whereabouts(const Waiters& waiters, const Block& block, const PhaseStep& step, Mask lanes) {
    const Warp& warp = block.cluster->blocks[step.rank]->warps[step.warp];
    if (!(warp.alive & lanes)) return "which has exited";
    for (const Waiter& other : waiters)
        if (other.warp == &warp && (other.lanes & lanes))
            return "which waits on " + other.line() + " for " + other.block->mbarriers.name(other.address);
    return "which is on " + block.line_words(warp.pc[__builtin_ctz(warp.alive & lanes)]);
}

// "; phase 0 had it on line 78 by thread (0,0,0), which waits on line 233 for ...": one who has done it before and has
// not come; nothing where no thread is known.
std::string words_on_missing(const Waiters& waiters, const Waiter& at) {
    const Example before = example_for(at);
    if (!before.phase) return "";
    for (const PhaseStep& step : before.phase->steps) {
        const Mask lanes = still_to_come(at.barrier->phases.now(), step);
        if (!lanes || !step.arrivals) continue;
        PhaseStep first = step;
        first.lanes = lanes & -lanes;
        const bool is_other = before.address != at.address;
        if (is_other && !at.barrier->phase && !at.barrier->phases.now().arrivals())
            return "; no thread has arrived there so far: " + threads_of(*at.block, {&first}) + " arrived on " +
                   at.block->line_words(step.pc) + " at " + at.block->mbarriers.name(before.address) +
                   " instead, and " +
                   whereabouts(waiters, *at.block, step, first.lanes).substr(std::string("which ").size());
        return "; phase " + std::to_string(before.phase->number) +
               (is_other ? " of " + at.block->mbarriers.name(before.address) : " there") + " had an arrival on " +
               at.block->line_words(step.pc) + " by " + threads_of(*at.block, {&first}) + ", " +
               whereabouts(waiters, *at.block, step, first.lanes);
    }
    return "";
}

std::vector<std::string> words_on_all(const Waiters& waiters, const Waiter& root) {
    std::vector<std::string> words{
        root.block->mbarriers.words_on(root.address, *root.barrier, root.barrier->phases.now()) +
        words_on_missing(waiters, root)};
    std::set<std::pair<u32, u64>> named{{root.block->rank, root.address}};
    size_t more = 0;
    for (const Waiter& other : waiters) {
        if (!named.insert({other.block->rank, other.address}).second) continue;
        if (words.size() > OTHERS) {
            ++more;
            continue;
        }
        words.push_back(
            other.thread() + " waits on " + other.line() + " for phase " + std::to_string(other.barrier->phase) +
            " of " + other.block->mbarriers.name(other.address) + ", which lacks " + lacks(*other.barrier) +
            words_on_missing(waiters, other));
    }
    if (more) words.back() += "; others wait at " + plural(more, "more mbarrier");
    return words;
}

}  // namespace

std::string MBarriers::name(u64 address) const {
    const std::string text = block_.shared_place(address, 8, false).text;
    const size_t size = text.find(" (8 bytes)");
    return text.substr(0, size) +
           (size == std::string::npos ? "" : text.substr(size + std::string(" (8 bytes)").size()));
}

std::string MBarriers::words_on(u64 address, const MBarrier& barrier, const Phase& phase) const {
    const std::string expected =
        phase.expected == barrier.initial ? " (mbarrier.init on " + line_of_init(block_, barrier) + ")" : "";
    const std::string steps = words_of(block_, phase);
    return "phase " + std::to_string(phase.number) + " of " + name(address) + ": " + std::to_string(phase.arrivals()) +
           " of " + plural(phase.expected, "arrival") + expected + (steps.empty() ? "" : ", " + steps);
}

const Phase* MBarriers::phase_of(const LastWait& wait) const {
    const MBarrier* barrier = wait.any && wait.phase >= 0 ? known(wait.address) : nullptr;
    const Phase* phase = barrier ? barrier->phases.find(u64(wait.phase)) : nullptr;
    return phase && phase->number < barrier->phase ? phase : nullptr;
}

std::string MBarriers::words_on(const LastWait& wait, const std::string& whose) const {
    if (!wait.any) return "";
    const std::string words = whose + ", on " + block_.line_words(wait.pc) + ", was for ";
    if (wait.at_once)
        return words + name(wait.address) +
               " and returned at once: a new mbarrier counts as one whose phase before the first has ended";
    if (const Phase* phase = phase_of(wait)) return words + words_on(wait.address, *known(wait.address), *phase);
    return words + name(wait.address);
}

std::string MBarriers::words_on_last_wait(const Warp& warp) const {
    return words_on(last_wait(warp), LAST_OF_WARP);
}

std::vector<std::string> MBarriers::words_on_unwritten(const Warp& warp) const {
    const LastWait& wait = last_wait(warp);
    const Phase* phase = phase_of(wait);
    const auto brings = [](const PhaseStep& step) { return step.came != 0; };
    if (!wait.at_once && !(phase && std::any_of(phase->steps.begin(), phase->steps.end(), brings))) return {};
    return {words_on_last_wait(warp)};
}

std::string MBarriers::words_on_unannounced(const LastWait& wait, const BulkCopy& copy) const {
    const Phase* phase = phase_of(wait);
    if (!phase || u64(copy.barrier) != wait.address || copy.phase <= phase->number || copy.rank == block_.rank)
        return "";
    const auto announced = [](const Phase& of) {
        s64 sum = 0;
        for (const PhaseStep& step : of.steps) sum += step.announced;
        return sum;
    };
    if (!announced(*phase) || announced(known(wait.address)->phases.now())) return "";
    s64 came = 0;
    for (const PhaseStep& step : phase->steps) came += step.came;
    const u64 all = u64(came) + copy.bytes;
    return "; then come the " + plural(copy.bytes, "byte") +
           " of that bulk copy, which nothing has announced: at least " + plural(all, "byte") +
           " are of this phase, and " + std::to_string(announced(*phase)) + " are announced";
}

std::vector<std::string> MBarriers::words_on_early(
    const LastWait& wait, const std::string& whose, u32 rank, u32 thread, u32 clock, const std::string& does) const {
    const Phase* phase = phase_of(wait);
    const PhaseStep* step = phase ? phase->arrival_of(rank, thread / LANES, Mask(1) << thread % LANES) : nullptr;
    if (!step || step->clock >= clock) return {};
    const std::string of = rank == block_.rank ? "" : " of block rank " + std::to_string(rank);
    return {words_on(wait, whose) + "; " + block_.thread(thread) + of + " had arrived before it " + does};
}

void MBarriers::deadlock() {
    for (auto& [address, barrier] : barriers_)
        for (const Mask lanes : barrier.waiting)
            if (lanes && barrier.bytes < 0 && barrier.pending <= 0)
                too_many_bytes(barrier, address, -barrier.bytes, nullptr);
    const Waiters waiters = waiters_of(block_);
    const Waiter& root = root_of(waiters);
    const MBarrier& barrier = *root.barrier;
    // Who arrives might yet expect what came too early.
    const std::string early = barrier.bytes < 0 ? "; it got " + plural(u64(-barrier.bytes), "byte") +
                                                      ", which no arrival has expected (expect_tx)"
                                                : "";
    Block& block = *root.warp->block;
    Finding finding = block.at(
        *root.warp, root.warp->pc[root.lane()], root.lane(), FindingKind::deadlock,
        block.thread(root.warp->thread(root.lane())) + " waits at the mbarrier " +
            block.shared_place(root.address, 8, false).text + ", which expects " + plural(barrier.expected, "arrival") +
            " and still lacks " + lacks(barrier) + " in phase " + std::to_string(barrier.phase) + early +
            block.elected_words());
    finding.phases = words_on_all(waiters, root);
    block.stop_at(std::move(finding));
}

}  // namespace sim
