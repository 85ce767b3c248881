// grid: the clusters of a launch on the host's threads; most are one block
//
// They start in a seeded random order. One that has run long is set aside for
// others, so that blocks which wait for each other make progress.
#include <algorithm>
#include <deque>
#include <numeric>
#include <thread>

#include "cluster.h"
#include "standstill.h"

namespace sim {

namespace {

constexpr u64 TURN = 1 << 21;              // warp instructions before a block is set aside
constexpr u64 COOPERATIVE_TURN = 1 << 10;  // where blocks wait for each other
constexpr u64 SMALL_CARD_TURN = 1 << 14;   // where they may wait for one that cannot start
constexpr u64 LATE_ONE_IN = 1 << 8;        // turns of such blocks, after which one falls behind
constexpr u64 LATE_TURNS = 1 << 4;         // of each other block before it goes on
constexpr u64 ROUNDS_ONE_WAY = 1 << 3;     // turns of each block that may wait, after which their order is reversed
constexpr u64 RESIDENT_BYTES = u64(512) << 20;  // of register files and shared memory, of blocks set aside
constexpr u64 RESIDENT_BLOCKS = 4096;

class Scheduler {
 public:
    explicit Scheduler(Launch& launch)
        : launch_(launch), size_(launch.blocks_per_cluster()), total_(launch.blocks() / size_) {
        stride_ = total_ > 1 ? (launch.order * 0x9e3779b97f4a7c15u | 1) % total_ : 1;
        while (std::gcd(stride_, total_) != 1) stride_ = stride_ % total_ + 1;
        offset_ = (launch.order * 0xbf58476d1ce4e5b9u >> 16) % total_;
        const Program& p = *launch.program;
        const u64 warps = (launch.threads_per_block() + LANES - 1) / LANES;
        const u64 bytes = warps * (p.row_bytes + LANES * 2 * p.local_bytes) + launch.shared_bytes() * 8 + 4096;
        cooperative_ = launch.workspace != 0;
        capacity_ = std::max<u64>(std::min(RESIDENT_BLOCKS, RESIDENT_BYTES / bytes), u64(launch.threads));
        capacity_ = std::max<u64>(capacity_ / size_, 1);
        if (cooperative_) capacity_ = total_;  // all are resident
        if (launch.resident) capacity_ = std::min(capacity_, std::max<u64>(launch.resident / size_, 1));
        both_ways_ = p.polls && !launch.resident;
        turn_ = cooperative_ || p.fences || p.polls ? COOPERATIVE_TURN : launch.resident ? SMALL_CARD_TURN : TURN;
    }

    void work() {
        try {
            while (std::unique_ptr<Cluster> cluster = next()) {
                const bool finished = cluster->run(turn_);
                for (auto& block : cluster->blocks) count(*block);
                if (!finished && size_ == 1) check_progress(*cluster->blocks[0]);
                put_back(std::move(cluster), finished);
            }
        } catch (const Halt&) {
        } catch (const std::bad_alloc&) {
            Finding finding;
            finding.kind = FindingKind::launch_failed;
            finding.message = "the simulator has not enough memory for a block of this launch";
            finding.kernel = launch_.program->name;
            launch_.keep(finding);
        }
    }

 private:
    std::unique_ptr<Cluster> next() {
        std::unique_ptr<Cluster> cluster;
        u64 linear = 0;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (launch_.stop) return nullptr;
            if (started_ < total_ && resident_ < capacity_) {
                const u64 nth = launch_.backwards ? total_ - 1 - started_ : started_;
                ++started_;
                linear = u64((u128(nth) * stride_ + offset_) % total_);
                ++resident_;
                if (!idle_.empty()) {
                    cluster = std::move(idle_.back());
                    idle_.pop_back();
                }
            } else if (late_ && (waiting_.empty() || !late_turns_--)) {
                return std::move(late_);
            } else if (!waiting_.empty()) {
                cluster = std::move(waiting_.front());
                waiting_.pop_front();
                return cluster;
            } else {
                return nullptr;
            }
        }
        if (!cluster) cluster = std::make_unique<Cluster>(launch_);
        cluster->start(linear);
        return cluster;
    }

    void put_back(std::unique_ptr<Cluster> cluster, bool finished) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (finished) {
            --resident_;
            standstill_.end();
            idle_.push_back(std::move(cluster));
        } else if (cooperative_ && !late_ && cluster->blocks[0]->random() % LATE_ONE_IN == 0) {
            // All are resident, but none need be as fast as another: its messages may be overtaken.
            late_ = std::move(cluster);
            late_turns_ = LATE_TURNS * resident_;
        } else {
            waiting_.push_back(std::move(cluster));
            // Else a block's turn would always come after that of the blocks that it waits for.
            if (both_ways_ && started_ == total_ && turns_++ % (ROUNDS_ONE_WAY * std::min(total_, capacity_)) == 0)
                std::reverse(waiting_.begin(), waiting_.end());
        }
    }

    // Whether the blocks on a small card wait for one that cannot start before one of them ends.
    void check_progress(Block& block) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!launch_.resident || started_ == total_ || resident_ < capacity_) return;
        if (standstill_.repeats(block, resident_)) block.stop_at(standstill(block, total_ - started_));
    }

    void count(Block& block) {
        u64 lanes = 0;
        for (Warp& warp : block.warps) {
            lanes += warp.executed_lanes;
            warp.executed_lanes = 0;
        }
        if (block.counters) {
            const std::lock_guard<std::mutex> lock(launch_.mutex);
            launch_.counters->add(*block.counters);
            block.counters->clear();
        }
        launch_.executed_lanes += lanes;
    }

    Launch& launch_;
    bool cooperative_ = false;
    bool both_ways_ = false;  // whether blocks take turns in the order of the start and in the reverse of it
    u64 turns_ = 0;           // of blocks that were not done
    u64 size_, total_, stride_ = 1, offset_ = 0, capacity_ = 1;
    std::mutex mutex_;
    u64 started_ = 0, resident_ = 0;
    std::deque<std::unique_ptr<Cluster>> waiting_;
    std::unique_ptr<Cluster> late_;  // one that has fallen behind
    u64 late_turns_ = 0;
    u64 turn_ = TURN;  // shorter where blocks may wait for each other
    Standstill standstill_;
    std::vector<std::unique_ptr<Cluster>> idle_;
};

}  // namespace

void run_grid(Launch& launch) {
    Scheduler scheduler(launch);
    std::vector<std::thread> others;
    const u64 wanted = std::min<u64>(u64(launch.threads), launch.blocks() / launch.blocks_per_cluster());
    for (u64 i = 1; i < wanted; ++i) others.emplace_back([&] { scheduler.work(); });
    scheduler.work();
    for (auto& thread : others) thread.join();
    if (launch.suspicion && !launch.finding) launch.finding = std::move(launch.suspicion);
    if (launch.objection && !launch.finding) launch.finding = std::move(launch.objection);
}

// A value read before anybody wrote it is the likelier cause of whatever came
// after.
void Launch::keep(Finding found) const {
    const std::lock_guard<std::mutex> lock(mutex);
    if (suspicion && found.kind != FindingKind::race) found = *suspicion;
    if (!finding) finding = std::make_unique<Finding>(std::move(found));
    stop = true;
}

void Launch::suspect(Finding found) const {
    constexpr u64 PATIENCE = 1 << 23;  // warp instructions
    const std::lock_guard<std::mutex> lock(mutex);
    if (suspicion) return;
    suspicion = std::make_unique<Finding>(std::move(found));
    suspected_until = executed + PATIENCE;
    suspects = true;
}

void Launch::object(Finding found) const {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!objection) objection = std::make_unique<Finding>(std::move(found));
}

void Launch::print(const std::string& text) const {
    constexpr size_t MOST = 1 << 20;  // as the card's own buffer
    const std::lock_guard<std::mutex> lock(mutex);
    if (printed.size() < MOST) printed += text.substr(0, MOST - printed.size());
}

namespace {

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

bool is_in(const ptx::Module& module, const ptx::Location& place, const std::string& name) {
    const auto file = module.files.find(place.file);
    return file != module.files.end() && base_name(file->second) == name;
}

}  // namespace

SourceLine source_line(const ptx::Module& module, u32 location, const std::string& source) {
    const std::string name = base_name(source);
    for (s32 at = s32(location); at > 0; at = module.locations[size_t(at)].inlined_at) {
        const ptx::Location& place = module.locations[size_t(at)];
        if (is_in(module, place, name)) return {source, place.line};
    }
    const ptx::Location& place = module.locations[location];
    const auto file = module.files.find(place.file);
    return {file == module.files.end() ? source : file->second, place.line};
}

std::vector<u32> caller_lines(const ptx::Module& module, u32 location, const std::string& source) {
    const std::string name = base_name(source);
    std::vector<u32> lines;
    for (s32 at = s32(location); at > 0; at = module.locations[size_t(at)].inlined_at) {
        const ptx::Location& place = module.locations[size_t(at)];
        if (is_in(module, place, name)) lines.push_back(place.line);
    }
    if (!lines.empty()) lines.erase(lines.begin());
    return lines;
}

}  // namespace sim
