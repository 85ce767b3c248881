#include "special.h"

namespace sim {

namespace {

using C = SpecialContext;

u32 zero(const C&) {
    return 0;
}
u32 one(const C&) {
    return 1;
}
u32 below(const C& c) {
    return (1u << c.lane) - 1;
}

u32 blocks(const C& c) {
    return c.cluster[0] * c.cluster[1] * c.cluster[2];
}

constexpr Special SPECIALS[] = {
    {"%tid.x", [](const C& c) { return c.thread() % c.block_size[0]; }},
    {"%tid.y", [](const C& c) { return c.thread() / c.block_size[0] % c.block_size[1]; }},
    {"%tid.z", [](const C& c) { return c.thread() / (c.block_size[0] * c.block_size[1]); }},
    {"%ntid.x", [](const C& c) { return c.block_size[0]; }},
    {"%ntid.y", [](const C& c) { return c.block_size[1]; }},
    {"%ntid.z", [](const C& c) { return c.block_size[2]; }},
    {"%ctaid.x", [](const C& c) { return c.block[0]; }, true},
    {"%ctaid.y", [](const C& c) { return c.block[1]; }, true},
    {"%ctaid.z", [](const C& c) { return c.block[2]; }, true},
    {"%clusterid.x", [](const C& c) { return c.block[0] / c.cluster[0]; }, true},
    {"%clusterid.y", [](const C& c) { return c.block[1] / c.cluster[1]; }, true},
    {"%clusterid.z", [](const C& c) { return c.block[2] / c.cluster[2]; }, true},
    {"%nctaid.x", [](const C& c) { return c.grid_size[0]; }},
    {"%nctaid.y", [](const C& c) { return c.grid_size[1]; }},
    {"%nctaid.z", [](const C& c) { return c.grid_size[2]; }},
    {"%nclusterid.x", [](const C& c) { return c.grid_size[0] / c.cluster[0]; }},
    {"%nclusterid.y", [](const C& c) { return c.grid_size[1] / c.cluster[1]; }},
    {"%nclusterid.z", [](const C& c) { return c.grid_size[2] / c.cluster[2]; }},
    {"%laneid", [](const C& c) { return c.lane; }},
    {"%warpid", [](const C& c) { return c.warp; }},
    {"%nwarpid", [](const C& c) { return c.warps; }},
    {"%lanemask_eq", [](const C& c) { return 1u << c.lane; }},
    {"%lanemask_lt", below},
    {"%lanemask_le", [](const C& c) { return below(c) | 1u << c.lane; }},
    {"%lanemask_gt", [](const C& c) { return ~(below(c) | 1u << c.lane); }},
    {"%lanemask_ge", [](const C& c) { return ~below(c); }},
    {"%dynamic_smem_size", [](const C& c) { return c.dynamic_shared; }},
    {"%total_smem_size", [](const C& c) { return c.all_shared; }},
    {"%envreg1", [](const C& c) { return u32(c.workspace >> 32); }},
    {"%envreg2", [](const C& c) { return u32(c.workspace); }},
    {"%smid", zero},
    {"%nsmid", one},
    {"%gridid", zero},
    {"%cluster_ctaid.x", [](const C& c) { return c.rank(0); }, true},
    {"%cluster_ctaid.y", [](const C& c) { return c.rank(1); }, true},
    {"%cluster_ctaid.z", [](const C& c) { return c.rank(2); }, true},
    {"%cluster_ctarank", [](const C& c) { return c.rank(0) + c.cluster[0] * (c.rank(1) + c.cluster[1] * c.rank(2)); },
     true},
    {"%cluster_nctaid.x", [](const C& c) { return c.cluster[0]; }},
    {"%cluster_nctaid.y", [](const C& c) { return c.cluster[1]; }},
    {"%cluster_nctaid.z", [](const C& c) { return c.cluster[2]; }},
    {"%cluster_nctarank", blocks},
    {"%is_explicit_cluster", [](const C& c) { return u32(blocks(c) > 1); }},
};

}  // namespace

const Special* find_special(std::string_view name) {
    for (auto& known : SPECIALS)
        if (known.name == name) return &known;
    return nullptr;
}

}  // namespace sim
