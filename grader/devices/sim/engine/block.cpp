#include "block.h"

#include <algorithm>

#include "cluster.h"
#include "operation.h"
#include "global_shadow.h"

namespace sim {

namespace {

constexpr u64 SLICE = 1 << 14;          // warp instructions before another warp gets its turn
constexpr u32 ROUNDS = 64;              // of turns, before those who wait at an mbarrier get one
constexpr u64 ACCOUNT_EVERY = 1 << 15;  // and before they are added to the launch's sum

u64 mix(u64 x) {  // splitmix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// "250 million", where it is so many millions.
std::string in_words(u64 count) {
    constexpr u64 MILLION = 1'000'000;
    return count % MILLION ? std::to_string(count) : std::to_string(count / MILLION) + " million";
}

Mask first_lanes(u64 count) {
    return count >= LANES ? ALL : (Mask(1) << count) - 1;
}

}  // namespace

Block::Block(const Launch& l, Cluster& its, u32 number) : launch(&l), program(l.program), cluster(&its), rank(number) {
    const u64 threads = l.threads_per_block();
    warps.resize((threads + LANES - 1) / LANES);
    shared.prepare(l.shared_bytes(), program->granule_shift, l.blocks_per_cluster());
    shared.become(rank);
    if (l.blocks_per_cluster() > 1) visits_.resize(l.blocks_per_cluster() * WARPS_PER_BLOCK);
    if (program->multiplies) warpgroups = std::make_unique<Warpgroups>(*this);
    if (l.counters) counters = std::make_unique<Counters>(program->code.size());
    register_storage_.assign(warps.size() * program->row_bytes + 64, 0);
    local_storage_.assign(warps.size() * LANES * program->local_bytes + 16, 0);
    local_shadow_.assign(local_storage_.size(), 0);
    u8* rows = register_storage_.data();
    rows += (64 - reinterpret_cast<u64>(rows) % 64) % 64;
    for (size_t i = 0; i < warps.size(); ++i) {
        Warp& warp = warps[i];
        warp.index = u32(i);
        warp.block = this;
        warp.launch = launch;
        warp.code = program->code.data();
        warp.ways = program->ways.get();
        warp.overlaps = program->async_proxy || launch->before;
        warp.rows = rows + i * program->row_bytes;
        warp.local_bytes = program->local_bytes;
        warp.local = local_storage_.data() + i * LANES * program->local_bytes;
        warp.local_shadow = local_shadow_.data() + i * LANES * program->local_bytes;
        warp.existing = first_lanes(threads - i * LANES);
        fill_constants(warp);
        fill_specials(warp, true);
    }
}

void Block::fill_constants(Warp& warp) {
    for (const ConstantRow& row : program->constants) {
        if (row.bytes == 0) warp.predicate(row.offset) = row.bits ? ALL : 0;
        for (int l = 0; l < LANES; ++l) std::memcpy(warp.rows + row.offset + l * row.bytes, &row.bits, row.bytes);
    }
}

// Special registers: those of the thread once, those of the block whenever it
// becomes another one.
void Block::fill_specials(Warp& warp, bool once) {
    SpecialContext context{
        launch->block,
        launch->grid,
        index,
        warp.index,
        u32(warps.size()),
        0,
        u32(launch->dynamic_shared),
        u32(launch->shared_bytes()),
        launch->workspace,
        launch->cluster};
    for (const SpecialRow& row : program->specials) {
        if (!once && !row.special->of_block) continue;
        u32* d = warp.row<u32>(row.offset);
        for (context.lane = 0; context.lane < LANES; ++context.lane) d[context.lane] = row.special->value(context);
    }
}

void Block::start(u64 linear, u32 from) {
    const u32* grid = launch->grid;
    index[0] = u32(linear % grid[0]);
    index[1] = u32(linear / grid[0] % grid[1]);
    index[2] = u32(linear / (u64(grid[0]) * grid[1]));
    random_state_ = mix(launch->seed ^ mix(linear));
    if (from < last_clock) shared.prepare(launch->shared_bytes(), program->granule_shift, launch->blocks_per_cluster());
    last_clock = from;
    exited = false;
    std::fill(visits_.begin(), visits_.end(), Visit());
    shared.forget();
    if (program->fences) ordering.forget();
    copies.forget();
    registers.forget();
    acquired_maps.clear();
    if (warpgroups) warpgroups->forget();
    mbarriers.forget();
    origin = last_clock;
    proxied.fill(origin);
    releases = {};
    releases.block = u32(linear);
    std::fill(local_shadow_.begin(), local_shadow_.end(), 0);
    for (Barrier& barrier : barriers)
        if (barrier.open || barrier.expected || barrier.arrived) barrier = {};
    for (Warp& warp : warps) {
        warp.alive = warp.existing;
        warp.at_barrier = warp.at_warp_sync = warp.set_aside = 0;
        warp.parts.clear();
        warp.poisons.clear();
        warp.clock = last_clock + 1;
        warp.known_min = last_clock;
        warp.known.fill(last_clock);
        warp.executed = 0;
        warp.awaited = 0;
        warp.move(ALL, 0);
        std::fill(warp.jumped, warp.jumped + LANES, Warp::NEVER);
        if (!program->calls.empty()) std::fill(warp.stacks, warp.stacks + LANES, Stack());
        fill_specials(warp, false);
    }
}

u64 Block::random() {
    return random_state_ = mix(random_state_);
}

// Every instruction is in the sum before its block is done: on however many host threads the blocks run, and in
// whichever order, the same launch is too long or is not.
void Block::account(const Warp& warp) {
    const u64 sum = launch->executed += unaccounted_;
    unaccounted_ = 0;
    if (sum <= launch->limit && !(launch->suspects && sum > launch->suspected_until)) return;
    const int lane = warp.alive ? __builtin_ctz(warp.alive) : 0;
    stop_at(
        at(warp, warp.pc[lane], lane, FindingKind::time_out,
           "still running after " + in_words(launch->limit) + " warp instructions: " + thread(warp.thread(lane)) +
               " is on line " + std::to_string(line_of(warp.pc[lane]).line)));
}

Turn Block::run(u64 budget) {
    const u32 count = u32(warps.size());
    u32 rounds = 0;
    bool slept = false;
    progressed = false;
    for (u64 done = 0; done < budget && !slept;) {
        bool ran = false, finished = true;
        const u32 start = u32(random() % count);
        const bool backwards = random() & 1;
        for (u32 i = 0; i < count; ++i) {
            Warp& warp = warps[(start + (backwards ? count - i : i)) % count];
            if (warp.runnable()) {
                const u64 before = warp.executed;
                warp.run(std::min(SLICE, budget));
                slept |= yields;
                yields = false;
                done += warp.executed - before;
                unaccounted_ += warp.executed - before;
                ran = progressed = true;
                if (launch->stop.load(std::memory_order_relaxed)) throw Halt();
                if (unaccounted_ >= ACCOUNT_EVERY) account(warp);
            }
            finished &= warp.finished();
        }
        if (finished) {
            account(warps[start]);
            finish();
            return Turn::finished;
        }
        const bool turns = ++rounds % ROUNDS == 0;  // one who waits may be needed by one who spins
        if ((!ran || turns) && !mbarriers.wake() && !ran) {
            account(warps[0]);
            return Turn::blocked;
        }
    }
    account(warps[0]);
    return Turn::ran;
}

bool Block::waits() const {
    return std::any_of(warps.begin(), warps.end(), [](const Warp& w) { return w.at_barrier || w.at_warp_sync; });
}

void Block::finish() {
    if (pending) stop_at(*pending);
    copies.finish();
    mbarriers.finish();
    for (const Warp& warp : warps) last_clock = std::max(last_clock, warp.clock);
    if (!visits_.empty()) check_visits();
    exited = true;
}

void Block::leave(Warp& warp, Mask lanes) {
    warp.retire(lanes);
    if (warpgroups && !warp.alive) warpgroups->exit(warp);
    cluster->barrier.check();
}

// ---- other blocks of the cluster in its shared memory

void Block::note_visit(const Warp& visitor, int lane) {
    Block& other = *visitor.block;
    if (exited)
        other.stop_at(other.at(
            visitor, visitor.here, lane, FindingKind::race,
            "touches shared memory of block rank " + std::to_string(rank) +
                " of its cluster, which has exited: a block must stay until the others are done with it"));
    visits_[other.rank * WARPS_PER_BLOCK + visitor.index] = {visitor.clock, visitor.here, lane};
}

// Shared memory is gone with its block: somebody of the block must know that each visit is over.
void Block::check_visits() {
    for (u32 from = 0; from < visits_.size(); ++from) {
        const Visit& visit = visits_[from];
        if (!visit.clock) continue;
        Block& other = *cluster->blocks[from / WARPS_PER_BLOCK];
        const u32 component = warp_of_rank(other.rank, from % WARPS_PER_BLOCK);
        const auto knows = [&](const Warp& warp) {
            for (int l = 0; l < LANES; ++l)
                if (warp.knows_component(l, component, u32(visit.lane), visit.clock)) return true;
            return false;
        };
        if (std::any_of(warps.begin(), warps.end(), knows)) continue;
        other.stop_at(other.at(
            other.warps[from % WARPS_PER_BLOCK], visit.pc, visit.lane, FindingKind::race,
            "touches shared memory of block rank " + std::to_string(rank) +
                " of its cluster, which exits without waiting for that: end with a barrier of the cluster"));
    }
}

// ---- barriers

// CUDA asks that all threads of a block come to the same __syncthreads().
void Block::check_same_barrier(const Warp& warp, Barrier& barrier, Mask lanes) {
    if (!barrier.open) {
        barrier.open = true;
        barrier.pc = warp.here;
        return;
    }
    const u32 first = line_of(barrier.pc).line, now = line_of(warp.here).line;
    if (barrier.pc == warp.here || first == now) return;
    // Threads meet at a barrier by its number (PTX ISA 9.7.13.1, "barrier"), so the launch goes on; whether it hangs is
    // seen in the end.
    const int lane = __builtin_ctz(lanes);
    launch->object(
        at(warp, warp.here, lane, FindingKind::divergent_barrier,
           thread(warp.thread(lane)) + " waits at the barrier on line " + std::to_string(now) +
               " while other threads of its block wait at the one on line " + std::to_string(first)));
}

bool Block::complete(const Barrier& barrier) const {
    u64 threads = barrier.arrived;
    for (const Warp& warp : warps) {
        const Mask waiting = barrier.waiting[warp.index];
        // With an explicit count a whole warp counts as 32 threads.
        threads += barrier.expected && waiting == warp.existing ? LANES : u64(__builtin_popcount(waiting));
    }
    return threads >= (barrier.expected ? barrier.expected : launch->threads_per_block());
}

void Block::wait(Warp& warp, Mask lanes, u32 id, u32 expected, Mask votes, Reduction op) {
    Barrier& barrier = barriers[id % BARRIERS];
    if (expected == 0) check_same_barrier(warp, barrier, lanes);
    barrier.expected = expected;
    barrier.waiting[warp.index] |= lanes;
    barrier.votes += u32(__builtin_popcount(votes & lanes));
    barrier.voters += u32(__builtin_popcount(lanes));
    warp.at_barrier |= lanes;
    warp.move(lanes, warp.here);
    if (complete(barrier)) release(barrier, op);
}

void Block::arrive(Warp& warp, Mask lanes, u32 id, u32 expected) {
    Barrier& barrier = barriers[id % BARRIERS];
    barrier.expected = expected;
    barrier.arrived += lanes == warp.existing ? LANES : u32(__builtin_popcount(lanes));
    warp.release(lanes, barrier.released);
    warp.tick();
    if (complete(barrier)) release(barrier, Reduction::none);
}

void Block::release(Barrier& barrier, Reduction op) {
    const u32 votes = barrier.votes, voters = barrier.voters;
    for (Warp& warp : warps) {
        const Mask lanes = barrier.waiting[warp.index];
        for (int l = 0; l < LANES; ++l) {
            if (!(lanes >> l & 1)) continue;
            const Instruction& in = program->code[warp.pc[l]];
            const bool truth = op == Reduction::all ? votes == voters : votes > 0;
            if (op == Reduction::popc) warp.row<u32>(in.operand[0])[l] = votes;
            if (op == Reduction::all || op == Reduction::any)
                warp.set_predicate(in.operand[0], Mask(1) << l, truth ? ALL : 0);
            warp.pc[l] += 1;
        }
        warp.at_barrier &= ~lanes;
    }
    const Barrier done = std::move(barrier);
    barrier = {};
    synchronise(done);
}

// What all did before they came, or exited, comes before what those who waited do after it.
void Block::synchronise(const Barrier& barrier) {
    const Mask* members = barrier.waiting;
    VectorClock joined = barrier.released;
    u32 latest = 0;
    for (Warp& warp : warps) {
        if (!members[warp.index]) continue;
        latest = std::max(latest, warp.clock);
        warp.release(members[warp.index] | (warp.existing & ~warp.alive), joined);
    }
    const u32 least = joined.min(warps.size());
    for (Warp& warp : warps) {
        if (!members[warp.index]) continue;
        warp.become(members[warp.index], joined, least);
        warp.clock = latest + 1;
    }
}

// ---- fences and flags

void Block::fence(Warp& warp, Mask lanes, bool device) {
    if (device && launch->global_shadow) {
        VectorClock known;
        warp.release(lanes, known);
        launch->global_shadow->release_acquire.fence(releases, warp, lanes, known.since(origin));
    }
    ordering.fence(warp, lanes);
}

void Block::settle_reads() {
    launch->global_shadow->release_acquire.settle(releases);
}

// Whether the fence itself comes before a copy is not asked: enough that somebody fenced who knew of the writes.
void Block::fence_proxy(Warp& warp, Mask lanes) {
    if (!program->async_proxy) return;
    warp.release(lanes, proxied);
    warp.tick();
}

void Block::record_strong_access(Warp& warp, const Instruction& in, Mask mask, Access access, u8* const* at) {
    if (in.releases) fence(warp, mask, true);
    ordering.record_strong_access(warp, mask, at, access);
    if (in.acquires) ordering.fence(warp, mask);
    // Last: a fence settles what was read, and the running instruction has not read yet.
    if (launch->global_shadow)
        launch->global_shadow->release_acquire.record_strong_access(releases, warp, mask, at, access, in.acquires);
}

// ---- findings

SourceLine Block::line_of(u32 pc) const {
    return source_line(*program->module, program->code[pc].location, launch->source);
}

std::string Block::line_words(u32 pc) const {
    std::string words = "line " + std::to_string(line_of(pc).line);
    const std::vector<u32> callers = caller_lines(*program->module, program->code[pc].location, launch->source);
    for (size_t i = 0; i < callers.size(); ++i)
        words += (i ? ", from line " : " (called on line ") + std::to_string(callers[i]);
    return callers.empty() ? words : words + ")";
}

// The last branch before an instruction, taken or not, of a lane that took `jump` last; NEVER where that is not known.
static u32 branch_to(const std::vector<Instruction>& code, u32 pc, u32 jump) {
    for (;; --pc) {
        if (jump != Warp::NEVER && code[jump].target == pc) return jump;
        if (pc == 0) return Warp::NEVER;
        const Instruction& before = code[pc - 1];
        if (before.flow == Flow::branch) return before.guard < 0 ? Warp::NEVER : pc - 1;
        const std::string_view form = before.entry ? std::string_view(before.entry->form) : std::string_view();
        const bool ends = form.substr(0, 3) == "ret" || form == "exit" || form == "trap" || form.substr(0, 3) == "brx";
        if (ends) return Warp::NEVER;
    }
}

// Compilers give all returns of a kernel one instruction, on the line of its last brace: then the branch that led there
// says more.
std::string Block::exit_words(const Warp& warp, int lane) const {
    const u32 exit = warp.pc[lane], line = line_of(exit).line;
    for (u32 pc = 0; pc < program->code.size(); ++pc)
        if (line_of(pc).line > line && line_of(pc).file == line_of(exit).file) return "on line " + std::to_string(line);
    const u32 branch = branch_to(program->code, exit, warp.jumped[lane]);
    return branch == Warp::NEVER ? "on line " + std::to_string(line) : "after the branch on " + line_words(branch);
}

std::string Block::thread(u32 linear) const {
    const u32* n = launch->block;
    return thread_name(linear % n[0], linear / n[0] % n[1], linear / (n[0] * n[1]));
}

Site Block::site(const Warp& warp, u32 pc, int lane) const {
    Site s;
    s.kernel = program->name;
    const SourceLine where = line_of(pc);
    s.file = where.file;
    s.line = where.line;
    s.callers = caller_lines(*program->module, program->code[pc].location, launch->source);
    s.has_thread = true;
    const u32 t = warp.thread(lane);
    const u32* n = launch->block;
    std::copy(warp.block->index, warp.block->index + 3, s.block);
    s.thread[0] = t % n[0];
    s.thread[1] = t / n[0] % n[1];
    s.thread[2] = t / (n[0] * n[1]);
    return s;
}

Finding Block::at(const Warp& warp, u32 pc, int lane, FindingKind kind, std::string message) const {
    Finding f;
    static_cast<Site&>(f) = site(warp, pc, lane);
    f.kind = kind;
    f.message = std::move(message);
    return f;
}

void Block::stop_at(Finding finding) {
    // A value read before anybody wrote it is the likelier cause of whatever came
    // after.
    launch->keep(pending && finding.kind != FindingKind::race ? *pending : std::move(finding));
    throw Halt();
}

const Extent* Block::extent_of(u64 address) const {
    const Extent* best = nullptr;
    for (const Extent& extent : program->shared)
        if (extent.offset <= address && !(best && extent.offset < best->offset)) best = &extent;
    return best;
}

Place Block::shared_place(u64 address, u32 bytes, bool is_outside) const {
    const Extent* best = extent_of(address);
    if (!best) return outside("shared memory", ArrayShape{}, s64(address), launch->shared_bytes(), bytes);
    const bool dynamic = best->offset == program->dynamic_base && best->bytes == 0;
    const u64 size = dynamic ? launch->dynamic_shared : best->bytes;
    const s64 offset = s64(address - best->offset);
    return is_outside ? outside(best->name, best->shape, offset, size, bytes)
                      : inside(best->name, best->shape, offset, bytes);
}

void Block::deadlock_at_warp_sync(const Warp& warp) {
    const int lane = __builtin_ctz(warp.at_warp_sync);
    const u32 pc = warp.pc[lane];
    const Instruction& in = program->code[pc];
    const Mask named = warp.row<const u32>(in.operand[in.target])[lane] & warp.existing;
    Mask there = 0;
    for (int l = 0; l < LANES; ++l) there |= Mask((warp.at_warp_sync >> l & 1) && warp.pc[l] == pc) << l;
    const Mask missing = named & ~there;
    const int other = missing ? __builtin_ctz(missing) : lane;
    const bool gone = !(warp.alive >> other & 1);
    stop_at(
        at(warp, pc, lane, FindingKind::deadlock,
           thread(warp.thread(lane)) + " waits in " + in.entry->form + " for all lanes of its mask, but " +
               thread(warp.thread(other)) +
               (gone ? " has exited " + exit_words(warp, other)
                     : " waits on line " + std::to_string(line_of(warp.pc[other]).line)) +
               " and never comes"));
}

std::string Block::elected_words() const {
    std::string lines;
    const auto& code = program->code;
    for (u32 pc = 0; launch->elects_last() && pc < code.size(); ++pc)
        if (code[pc].entry && code[pc].entry->form == "elect.sync")
            lines += (lines.empty() ? "" : ", ") + line_words(pc);
    if (lines.empty()) return "";
    return "; in this call elect.sync (" + lines + ") chooses the last lane: PTX does not say which one it chooses";
}

void Block::deadlock() {
    const Warp* waiter = nullptr;
    u64 waiting = 0, elsewhere = 0, exited = 0;
    for (const Warp& warp : warps)
        if (warp.at_warp_sync) deadlock_at_warp_sync(warp);
    registers.deadlock();
    if (warpgroups) warpgroups->deadlock();
    if (mbarriers.any_waiting()) mbarriers.deadlock();
    for (auto& block : cluster->blocks)
        if (block->mbarriers.any_waiting()) block->mbarriers.deadlock();
    for (const Warp& warp : warps)
        if (!waiter && warp.at_barrier) waiter = &warp;
    const int lane = __builtin_ctz(waiter->at_barrier);
    const u32 pc = waiter->pc[lane], line = line_of(pc).line;
    std::string other;
    for (const Warp& warp : warps) {
        for (int l = 0; l < LANES; ++l) {
            if (!(warp.existing >> l & 1)) continue;
            const bool here = (warp.at_barrier >> l & 1) && warp.pc[l] == pc, gone = !(warp.alive >> l & 1);
            (here ? waiting : gone ? exited : elsewhere) += 1;
            if (here || !other.empty()) continue;
            other = thread(warp.thread(l)) + (gone ? " exited " + exit_words(warp, l)
                                                   : " waits on line " + std::to_string(line_of(warp.pc[l]).line));
        }
    }
    std::string message = plural(waiting, "thread") + " of the block wait" + (waiting == 1 ? "s" : "") +
                          " at the barrier on line " + std::to_string(line);
    if (exited) message += ", " + plural(exited, "thread") + " exited without reaching it";
    if (elsewhere) message += ", " + plural(elsewhere, "thread") + " wait" + (elsewhere == 1 ? "s" : "") + " elsewhere";
    if (!other.empty()) message += " (" + other + ")";
    message += elected_words();
    stop_at(at(*waiter, pc, lane, FindingKind::deadlock, message));
}

}  // namespace sim
