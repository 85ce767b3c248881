// limits: the cards, and the launches that they refuse
#include <algorithm>

#include "device.h"
#include "occupancy.h"

namespace sim {

namespace {

constexpr Card H200{
    "NVIDIA H200 (simulated)", 9, 0, 132, u64(141) << 30, 50 << 20, 233472, 232448, 2048, 32, 1980000, 3201000, 6144};
constexpr Card A100{
    "NVIDIA A100 (simulated)", 8, 0, 108, u64(80) << 30, 40 << 20, 167936, 166912, 2048, 32, 1410000, 1593000, 5120};
constexpr Card A10{
    "NVIDIA A10 (simulated)", 8, 6, 72, u64(24) << 30, 6 << 20, 102400, 101376, 1536, 16, 1695000, 6251000, 384};
constexpr Card ADA{
    "NVIDIA L40S (simulated)", 8, 9, 142, u64(48) << 30, 96 << 20, 102400, 101376, 1536, 24, 2520000, 9001000, 384};
// Shared memory, threads and blocks: Turing Tuning Guide, and table 30 of the CUDA C++ Programming Guide 13.0.
constexpr Card T4{
    "NVIDIA T4 (simulated)", 7, 5, 40, u64(16) << 30, 4 << 20, 65536, 65536, 1024, 16, 1590000, 5001000, 256, 0};

struct Architecture {
    const char* digits;
    const Card* card;
};
constexpr Architecture ARCHITECTURES[] = {{"75", &T4}, {"80", &A100}, {"86", &A10}, {"89", &ADA}};

constexpr u32 BLOCK_DEPTH = 64, GRID_WIDTH = 0x7fffffff, GRID_HEIGHT = 65535;
constexpr int SHARED_NAMED = 3;  // variables that a refusal names

// Why each launch is refused and with which error: CUDA C++ Programming Guide 13.0, "Technical Specifications", and the
// runtime's list of errors. What registers allow is not known here: PTX has them without end, ptxas gives them out.
Refusal refuse_geometry(const Program& p, const Geometry& g) {
    const auto triple = [](const u32* v) { return triple_name(v[0], v[1], v[2]); };
    const bool wide = g.block[0] > THREADS_PER_BLOCK || g.block[1] > THREADS_PER_BLOCK || g.block[2] > BLOCK_DEPTH;
    const u64 threads = u64(g.block[0]) * g.block[1] * g.block[2];
    if (!wide && threads > THREADS_PER_BLOCK)
        return {INVALID_CONFIGURATION, "a block of " + std::to_string(threads) + " threads; the limit is 1024"};
    if (wide && g.block[1] == 1 && g.block[2] == 1)
        return {INVALID_CONFIGURATION, "a block of " + std::to_string(g.block[0]) + " threads; the limit is 1024"};
    if (wide || threads == 0)
        return {
            INVALID_CONFIGURATION,
            "a block of " + triple(g.block) + " threads; each dimension must be at least 1 and at most (1024,1024,64)"};
    if (g.grid[0] == 0 || g.grid[1] == 0 || g.grid[2] == 0)
        return {INVALID_CONFIGURATION, "a grid of " + triple(g.grid) + " blocks; each dimension must be at least 1"};
    if (g.grid[0] > GRID_WIDTH || g.grid[1] > GRID_HEIGHT || g.grid[2] > GRID_HEIGHT)
        return {
            INVALID_CONFIGURATION, "a grid of " + triple(g.grid) + " blocks; the limit is (2147483647,65535,65535)"};
    if (p.limits.required[0] && !std::equal(g.block, g.block + 3, p.limits.required))
        return {
            INVALID_CONFIGURATION,
            "a block of " + triple(g.block) + " threads; the kernel requires " + triple(p.limits.required)};
    if (threads > p.limits.max_threads)
        return {
            LAUNCH_OUT_OF_RESOURCES, "a block of " + std::to_string(threads) +
                                         " threads; __launch_bounds__ of the kernel allows " +
                                         std::to_string(p.limits.max_threads)};
    return {};
}

// " (65536 dynamic + 256 static: partial_smem)"; empty of a kernel without variables of its own in shared memory.
std::string terms_of_shared(const Program& p, u64 dynamic) {
    if (!p.static_shared) return "";
    std::string names;
    int named = 0;
    for (const Extent& each : p.shared)
        if (each.offset < p.static_shared && each.bytes && named++ < SHARED_NAMED)
            names += (names.empty() ? ": " : ", ") + each.name;
    return " (" + std::to_string(dynamic) + " dynamic + " + std::to_string(p.static_shared) + " static" + names +
           (named > SHARED_NAMED ? ", ..." : "") + ")";
}

Refusal refuse_memory(const Card& card, const Program& p, u64 dynamic_limit, const Geometry& g) {
    const u64 shared = p.static_shared + g.dynamic_shared,
              most = std::max(SHARED_PER_BLOCK, p.static_shared + dynamic_limit);
    if (shared < g.dynamic_shared || shared > card.shared_per_block_optin)
        return {
            INVALID_VALUE, std::to_string(std::max(shared, g.dynamic_shared)) + " bytes of shared memory a block" +
                               (shared < g.dynamic_shared ? "" : terms_of_shared(p, g.dynamic_shared)) +
                               "; the card has " + std::to_string(card.shared_per_block_optin)};
    if (shared > most)
        return {
            INVALID_VALUE,
            std::to_string(shared) + " bytes of shared memory a block" + terms_of_shared(p, g.dynamic_shared) +
                "; the limit is " + std::to_string(most) +
                " until cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize) raises it",
            true};
    if (p.variable_bytes > LOCAL_PER_THREAD)
        return {
            LAUNCH_OUT_OF_RESOURCES, std::to_string(p.variable_bytes) +
                                         " bytes of local memory a thread; the card has " +
                                         std::to_string(LOCAL_PER_THREAD)};
    return {};
}

// A cooperative launch needs all of its blocks on the card at once.
Refusal refuse_cooperative(const Card& card, const Program& p, const Geometry& g) {
    const u64 blocks = u64(g.grid[0]) * g.grid[1] * g.grid[2], threads = u64(g.block[0]) * g.block[1] * g.block[2];
    const u64 each = resident_blocks(card, p, threads, g.dynamic_shared), most = each * u64(card.multiprocessors);
    if (blocks <= most) return {};
    return {
        COOPERATIVE_LAUNCH_TOO_LARGE, std::to_string(blocks) + " blocks cooperatively, but only " +
                                          std::to_string(most) + " are resident at once (" + std::to_string(each) +
                                          " on each of " + std::to_string(card.multiprocessors) + " multiprocessors)"};
}

// What H200s answered is in tests/sim_kernels/clusters.cu.
Refusal refuse_cluster(const Program& p, const Geometry& g, u32 largest) {
    u32 size[3];
    cluster_of(p, g, size);
    const std::string name = "clusters of " + triple_name(size[0], size[1], size[2]) + " blocks";
    const u64 blocks = u64(size[0]) * size[1] * size[2];
    if (blocks > largest) return {INVALID_CLUSTER_SIZE, name + "; the limit is " + std::to_string(largest)};
    if (p.limits.cluster[0] && g.cluster[0] && !std::equal(size, size + 3, p.limits.cluster))
        return {
            INVALID_VALUE, name + "; __cluster_dims__ of the kernel is " +
                               triple_name(p.limits.cluster[0], p.limits.cluster[1], p.limits.cluster[2])};
    for (int i = 0; i < 3; ++i)
        if (g.grid[i] % size[i])
            return {
                INVALID_CLUSTER_SIZE,
                name + " and a grid of " + triple_name(g.grid[0], g.grid[1], g.grid[2]) + ", not a multiple of that"};
    return {};
}

}  // namespace

void cluster_of(const Program& p, const Geometry& g, u32* cluster) {
    for (int i = 0; i < 3; ++i)
        cluster[i] = g.cluster[i] ? g.cluster[i] : p.limits.cluster[i] ? p.limits.cluster[i] : 1;
}

const Card& card_of(const std::string& arch) {
    for (auto& known : ARCHITECTURES)
        if (arch.find(known.digits) != std::string::npos) return *known.card;
    return H200;
}

Refusal refuse(
    const Card& card, const Program& p, u64 dynamic_limit, const Geometry& g, bool cooperative, u32 largest) {
    Refusal refusal = refuse_geometry(p, g);
    if (!refusal.error) refusal = refuse_cluster(p, g, largest);
    if (!refusal.error) refusal = refuse_memory(card, p, dynamic_limit, g);
    if (!refusal.error && cooperative) refusal = refuse_cooperative(card, p, g);
    return refusal;
}

}  // namespace sim
