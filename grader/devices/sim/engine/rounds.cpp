#include "rounds.h"

#include <string_view>
#include <vector>

#include "decode.h"

namespace sim {

namespace {

struct Edge {
    u32 from, to;
    bool is_back() const { return to <= from; }
};

class Paths {
 public:
    explicit Paths(const Block& block) : code_(block.program->code), constants_(block.program->constants) {
        for (const Instruction& in : code_) {
            const std::string_view form = in.entry ? std::string_view(in.entry->form) : std::string_view();
            is_known_ &= form.substr(0, 4) != "call" && form.substr(0, 3) != "brx";
        }
    }
    bool is_known() const { return is_known_; }

    // Whether a way without a barrier of the block leads there; gives the jumps back on it. `without`: a jump that is
    // not taken.
    bool leads(u32 from, u32 to, bool forward, std::vector<Edge>& back, const Edge* without = nullptr) const {
        std::vector<s64> before(code_.size(), -1);
        std::vector<u32> todo = {from};
        while (!todo.empty()) {
            const u32 at = todo.back();
            todo.pop_back();
            for (const Edge& edge : edges(at, at == from)) {
                const bool is_barred = forward && edge.is_back();
                const bool is_left_out = without && edge.from == without->from && edge.to == without->to;
                if (edge.to >= code_.size() || is_barred || is_left_out || before[edge.to] >= 0) continue;
                before[edge.to] = at;
                if (edge.to != to) {
                    todo.push_back(edge.to);
                    continue;
                }
                back.clear();
                u32 here = to;
                do {
                    const Edge step = {u32(before[here]), here};
                    if (step.is_back()) back.push_back(step);
                    here = step.from;
                } while (here != from);
                return true;
            }
        }
        return false;
    }

 private:
    std::vector<Edge> edges(u32 at, bool is_first) const {
        const Instruction& in = code_[at];
        const std::string_view form = in.entry ? std::string_view(in.entry->form) : std::string_view();
        if (!is_first && is_barrier(in)) return {};
        std::vector<Edge> found;
        const bool always = in.guard < 0;
        if (in.flow == Flow::branch) found.push_back({at, in.target});
        const bool ends = form.substr(0, 3) == "ret" || form == "exit" || form == "trap";
        if (!(always && (in.flow == Flow::branch || ends))) found.push_back({at, at + 1});
        return found;
    }

    // A barrier that all threads of the block wait at: bar.sync 0.
    bool is_barrier(const Instruction& in) const {
        if (!in.entry || in.entry->lower != lower_barrier || in.guard >= 0) return false;
        return in.entry->form.find("arrive") == std::string::npos && is_zero(in.operand[1]) && is_zero(in.operand[2]);
    }

    bool is_zero(s32 row) const {
        for (const ConstantRow& constant : constants_)
            if (constant.offset == row) return constant.bits == 0;
        return false;
    }

    const std::vector<Instruction>& code_;
    const std::vector<ConstantRow>& constants_;
    bool is_known_ = true;
};

}  // namespace

std::string missing_barrier(const Block& block, u32 write, u32 read) {
    const std::string between = ", with no barrier between";
    const Paths paths(block);
    std::vector<Edge> back;
    if (!paths.is_known() || paths.leads(write, read, false, back) || !paths.leads(read, write, false, back))
        return between;
    std::vector<Edge> other;
    const std::string words = ", with no barrier from the read to the write";
    if (paths.leads(read, write, true, other)) return words;
    const bool is_only = back.size() == 1 && !paths.leads(read, write, false, other, &back[0]);
    const std::string loop = is_only ? "the loop that goes on from " + block.line_words(back[0].from) : "a loop";
    return words + " in the next round of " + loop;
}

}  // namespace sim
