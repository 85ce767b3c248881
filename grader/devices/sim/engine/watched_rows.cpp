// watched_rows: ordinary instructions that touch registers of wgmma's matrices
//
// Which they are is known when a program has been decoded. Each is replaced by one that asks the warpgroup first; all
// others cost nothing.
#include <algorithm>
#include <unordered_set>

#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

// The operands that an instruction writes, and those that it reads: [first, last) each.
struct Touched {
    int written = 0, first_read = 0, last_read = 0;
};

Touched touched_by(const Instruction& in) {
    const OpcodeEntry& entry = *in.entry;
    const int count = entry.operation.signature.count;
    if (entry.lower == lower_load) return {count, 0, 0};
    if (entry.lower == lower_store) return {0, 0, count};
    if (entry.lower == lower_setp) return {0, 2, 4};
    if (entry.lower == lower_collective) return {1, 2, count};
    if (entry.lower == lower_atomic) return {1, 1, count};
    if (entry.lower == lower_reduction) return {0, 1, count};
    if (entry.lower == lower_vector_move) {
        const bool packs = entry.form.find(".pack") != std::string::npos;
        return packs ? Touched{1, 1, count} : Touched{count - 1, count - 1, count};
    }
    if (entry.lower == lower_positional) return {1, 1, count};
    if (entry.lower == lower_video) return {1, 1, 4};
    return {};
}

bool renames(const Instruction& in) {
    const std::string& form = in.entry->form;
    return form.compare(0, 4, "mov.") == 0 && in.entry->lower == lower_positional;
}

void ask_then_run(Warp& warp, const Instruction& in, Mask mask) {
    Block& block = *warp.block;
    Warpgroups& warpgroups = *block.warpgroups;
    const Instruction& plain = block.program->plain ? block.program->plain->code[warp.here] : in;
    const auto& matrix = block.program->matrix_rows;
    if (renames(plain) && matrix.count(in.operand[1])) {
        warpgroups.rename_row(warp, in.operand[0], in.operand[1]);
    } else {
        const Touched touched = touched_by(plain);
        for (int i = touched.first_read; i < touched.last_read; ++i) warpgroups.read_row(warp, in.operand[i]);
        for (int i = 0; i < touched.written; ++i) warpgroups.write_row(warp, in.operand[i], renames(plain));
    }
    block.program->unwatched[warp.here](warp, in, mask);
}

}  // namespace

// Registers that are copied into those of matrices, or out of them, are other names of theirs.
void Decoder::add_copies(std::unordered_set<s32>& matrix) const {
    std::unordered_set<s32> constants;
    for (const ConstantRow& row : program_.constants) constants.insert(row.offset);
    for (size_t before = 0; before != matrix.size();) {
        before = matrix.size();
        for (const Instruction& in : program_.code) {
            if (!renames(in) || constants.count(in.operand[1])) continue;
            if (matrix.count(in.operand[0])) matrix.insert(in.operand[1]);
            if (matrix.count(in.operand[1])) matrix.insert(in.operand[0]);
        }
    }
}

void Decoder::watch_matrix_rows() {
    std::unordered_set<s32>& matrix = program_.matrix_rows;
    matrix.insert(matrix_rows_.begin(), matrix_rows_.end());
    add_copies(matrix);
    program_.unwatched.resize(program_.code.size());
    for (size_t pc = 0; pc < program_.code.size(); ++pc) {
        Instruction& in = program_.code[pc];
        const Touched touched = touched_by(in);
        for (int i = 0; i < touched.written; ++i) --destinations_[in.operand[i]];
        const auto any = [&](int first, int last) {
            return std::any_of(in.operand + first, in.operand + last, [&](s32 row) { return matrix.count(row) != 0; });
        };
        if (!any(0, touched.written) && !any(touched.first_read, touched.last_read)) continue;
        program_.unwatched[pc] = in.run;
        in.run = ask_then_run;
    }
    for (const auto& [row, times] : destinations_)
        if (times > 0) program_.set_elsewhere.insert(row);
}

}  // namespace sim
