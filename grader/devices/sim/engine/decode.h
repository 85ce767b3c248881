// decode: a kernel of a ptx::Module -> Program
//
// Registers become rows, labels become program counters, symbols become
// addresses. An instruction that no entry of the table describes throws Unsupported with
// its name and place.
#pragma once
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "operation.h"
#include "program.h"
#include "ptx.h"

namespace sim {

struct Unsupported : std::runtime_error {
    Unsupported(const std::string& what, u32 at) : std::runtime_error(what), location(at) {}
    u32 location;  // Module::locations
};

inline u64 align_up(u64 value, u64 alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

// What a pointer to a function holds; 0 where there is no function of that name.
u64 function_address(const ptx::Module& module, std::string_view name);

using Addresses = std::unordered_map<std::string_view,
                                     u64>;  // of module variables in global and constant space

class Decoder {
 public:
    Decoder(const ptx::Module& module, const Addresses& addresses) : module_(module), addresses_(addresses) {}
    Program decode(const ptx::Function& entry);

    // ---- for lowerings
    Instruction prototype(const ptx::Instruction& in, const OpcodeEntry& entry);
    void emit(Instruction instruction);  // after what its sources need, before
                                         // what its destinations need
    s32 source(const ptx::Operand& operand, Shape shape);
    s32 destination(const ptx::Operand& operand, Shape shape);
    s32 optional_predicate(const ptx::Operand& operand);  // destination p|q: row of q, or a sink
    s32 constant(u64 bits, u8 bytes);
    s32 sink(u8 bytes);
    s32 temporary(u8 bytes);
    void address(Instruction& out, const ptx::Operand& operand, const ptx::Instruction& in, u32 bytes);
    s32 address_row(const ptx::Operand& operand);  // the addresses that an address operand names, 8 bytes each
    bool is_predicate(const ptx::Operand& operand) const;
    void note_narrow_access() { program_.global_shift = 0; }  // to global memory, of any width
    void note_shared_access(u32 bytes) {                      // of that width, beside those of Decoder::address
        while ((u32(1) << program_.granule_shift) > bytes) --program_.granule_shift;
    }
    void note_matrix_rows(const std::vector<s32>& rows, int accumulators = 0) {  // of wgmma
        program_.multiplies = program_.async_proxy = true;
        for (int i = 0; i < accumulators; ++i) --destinations_[rows[size_t(i)]];
        matrix_rows_.insert(matrix_rows_.end(), rows.begin(), rows.end());
    }
    void note_fence() { program_.fences = true; }
    void note_registers_taken(u32 count) {  // by each thread
        program_.limits.taken_registers = std::max(program_.limits.taken_registers, count);
    }
    void note_async_proxy() { program_.async_proxy = true; }
    void branch_to(Instruction& out, std::string_view label);
    u32 branch_table(std::string_view name);
    s32 fragments(const std::vector<s32>& rows);  // where they stand in Program::fragments
    u32 indirect_call(const ptx::Operand* results, const ptx::Operand* arguments);
    u32 call_site(const ptx::Operand* results, std::string_view callee, const ptx::Operand* arguments);
    [[noreturn]] void unsupported(const std::string& what) const;
    void require(const ptx::Instruction& in, size_t operands) const;

 private:
    struct Layout {  // of one function in a program
        const ptx::Function* function = nullptr;
        std::vector<s32> registers;                        // rows, -1 until used
        std::vector<u64> variables;                        // offsets in local or shared memory
        std::unordered_map<std::string_view, u64> formal;  // parameters: offset in local memory, or address
        std::vector<s32> bases;                            // of each register: see bases.cpp
        s32 frame = -1;                                    // in Program::frames, of a function that calls itself
        u32 start = 0;
        std::vector<u32> pc_of;  // of each instruction of the body
    };
    struct Fixup {  // a branch whose label is not placed yet
        u32 pc;
        u32 layout;
        std::string_view label;
        s32 table = -1;
    };

    void collect(const ptx::Function& function);
    void collect_addressed();
    void place_variables();
    void place_shared();
    u64 place_local(Layout& layout, const ptx::Variable& variable);
    void place_shared_variable(const ptx::Variable& variable);
    void decode_function(u32 layout);
    void decode_instruction(const ptx::Instruction& in);
    void patch_branches();
    void find_recursion();
    std::vector<u32> callees(const ptx::Function& function) const;
    void complete_frames();
    void watch_matrix_rows();
    void add_copies(std::unordered_set<s32>& matrix) const;
    void find_bases();
    s32 base_of(const ptx::Operand& operand, const std::vector<s32>& bases) const;
    s32 base_of_result(const ptx::Instruction& in, const std::vector<s32>& bases) const;
    s32 frame_base(const ptx::Operand& symbol) const;
    ptx::Space space_of(const ptx::Operand& symbol) const;
    s32 moved_by(s32 row, Shape shape, s64 offset);
    u32 parameter_at(const ptx::Operand& symbol, u64 bytes) const;
    s32 in_frame(const ptx::Operand& symbol, Shape shape);
    void read_directives(const ptx::Function& entry);
    s32 new_row(u8 bytes);
    s32 register_row(s32 index);
    s32 special(std::string_view name, u8 bytes);
    s32 resize(s32 from, u8 from_bytes, Shape to);
    void resize_into(s32 from, Shape shape, s32 to, u8 to_bytes);
    u64 symbol_address(const ptx::Operand& operand) const;
    u8 register_bytes(s32 index) const;
    bool is_local_symbol(const ptx::Operand& operand) const;
    Layout& here() { return layouts_[current_]; }
    const Layout& here() const { return layouts_[current_]; }

    const ptx::Module& module_;
    const Addresses& addresses_;
    Program program_;
    std::vector<Layout> layouts_;
    std::unordered_map<std::string_view, u32> layout_index_;
    std::unordered_map<std::string_view, u64> shared_offsets_;
    std::unordered_map<std::string_view, u32> shared_index_;  // in Program::shared, of those with a size
    std::vector<const ptx::Variable*> module_shared_;
    u32 current_ = 0;
    const ptx::Instruction* instruction_ = nullptr;
    std::vector<Instruction> after_;
    std::map<std::pair<u8, u64>, s32> constants_;
    std::map<const Special*, s32> specials_;
    std::map<u8, s32> sinks_;
    std::map<u8, std::vector<s32>> temporaries_;
    std::map<u8, size_t> temporaries_used_;
    std::vector<Fixup> fixups_;
    std::vector<s32> matrix_rows_;
    std::unordered_map<s32, int> destinations_;  // how often each register is one, of instructions that are not watched
};

// The table's name of an instruction: its opcode without hints that change no
// result.
struct Form {
    std::string name;
    bool strong = false;
};
Form form_of(const ptx::Instruction& in);

// An opcode or a form, cut at its dots.
std::vector<std::string_view> words_of(std::string_view opcode);

// ---- lowerings
void lower_video(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_setp(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_vector_move(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_vector_copy(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_policy(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_set(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_load(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_store(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_atomic(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_vector_atomic(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_reduction(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_branch(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_branch_table(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_call(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_barrier(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_barrier_reduction(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_collective(Decoder&, const ptx::Instruction&,
                      const OpcodeEntry&);  // the last operand is the member mask
void lower_warp_barrier(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_fence(Decoder&, const ptx::Instruction&, const OpcodeEntry&);
void lower_nothing(Decoder&, const ptx::Instruction&,
                   const OpcodeEntry&);  // operands do not matter

}  // namespace sim
