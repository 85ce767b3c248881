// Branches are all that is noted while a kernel runs: what threads came to follows from the ways that they took.
#include "coverage.h"

#include <algorithm>
#include <map>

#include "launch.h"
#include "operation.h"

namespace sim {

namespace {

class Reached {
 public:
    explicit Reached(const Program& program) : program_(program), at_(program.code.size(), false) {
        if (program.ways->launched) come(0);
        while (!open_.empty()) {
            const u32 at = open_.back();
            open_.pop_back();
            follow(at, program.code[at]);
        }
    }
    bool operator[](u32 at) const { return at_[at]; }

 private:
    void come(u32 at) {
        if (at >= at_.size() || at_[at]) return;
        at_[at] = true;
        open_.push_back(at);
    }

    void follow(u32 at, const Instruction& in) {
        const std::string_view form = in.entry ? std::string_view(in.entry->form) : std::string_view();
        const auto is = [form](std::string_view word) { return form.substr(0, word.size()) == word; };
        if (in.flow == Flow::branch) {
            if (program_.ways->went(at, true)) come(in.target);
            if (program_.ways->went(at, false)) come(at + 1);
            return;
        }
        if (is("brx"))
            for (const u32 target : program_.branch_tables[in.target]) come(target);
        if (is("call.indirect"))
            for (auto& [address, site] : program_.indirect_calls[in.target]) come(program_.calls[site].target);
        else if (is("call") && !program_.calls[in.target].builtin)
            come(program_.calls[in.target].target);
        const bool ends = is("exit") || is("ret") || is("trap") || is("brx");
        if (!ends || in.guard >= 0) come(at + 1);
    }

    const Program& program_;
    std::vector<bool> at_;
    std::vector<u32> open_;
};

std::string json(const std::map<u32, int>& lines) {
    std::string out;
    for (auto& [line, state] : lines)
        out += (out.empty() ? "[" : ",[") + std::to_string(line) + "," + std::to_string(state) + "]";
    return "[" + out + "]";
}

// Whether the loop between two instructions only asks again whether a phase has ended. try_wait waits for that here,
// and always says yes, so such a loop never goes round.
bool only_waits(const Program& program, u32 first, u32 last) {
    constexpr u32 SHORT = 8;  // instructions: the wait, what makes a predicate of its answer, and the branch
    if (last - first >= SHORT) return false;
    const auto waits = [](const Instruction& in) {
        return in.entry && std::string_view(in.entry->form).substr(0, 17) == "mbarrier.try_wait";
    };
    return std::any_of(program.code.begin() + first, program.code.begin() + last, waits);
}

}  // namespace

std::string coverage(const Program& program, const std::string& source) {
    const Reached reached(program);
    std::map<u32, int> lines, loops;
    for (u32 at = 0; at < program.code.size(); ++at) {
        const Instruction& in = program.code[at];
        const SourceLine place = source_line(*program.module, in.location, source);
        if (place.file != source || !place.line) continue;
        int& line = lines[place.line];
        line = std::max(line, int(reached[at]));
        if (in.flow != Flow::branch || in.target > at || only_waits(program, in.target, at)) continue;
        int& loop = loops[place.line];
        loop = std::max(loop, reached[at] ? 1 + program.ways->went(at, true) : 0);
    }
    return "{\"kernel\":\"" + program.name + "\",\"launched\":" + (program.ways->launched ? "true" : "false") +
           ",\"lines\":" + json(lines) + ",\"loops\":" + json(loops) + "}";
}

}  // namespace sim
