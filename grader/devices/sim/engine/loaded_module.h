// loaded_module: the PTX of a kata, its variables in memory, and its kernels, decoded when they are first asked for
//
// What the host calls a function or a variable is an address of its own; the runtime registers which is which.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode.h"
#include "finding.h"
#include "memory.h"

namespace sim {

struct Function {
    std::string name;
    u64 dynamic_shared_limit = 0;  // set by cudaFuncSetAttribute; 0: the default
    bool large_clusters = false;   // of more than eight blocks are allowed
};

class LoadedModule {
 public:
    // Throws what the parser does.
    void load(std::string ptx, std::string source, Memory& memory);
    const std::string& source() const { return source_; }  // path of the learner's file

    void add_function(const void* host, const char* name) { functions_[host] = {name}; }
    void add_variable(const void* host, const char* name) { variables_[host] = name; }
    // How the source declares an array in shared memory; for every declaration, also of the same name.
    void add_shape(const std::string& name, ArrayShape shape) { shapes_[name].push_back(std::move(shape)); }

    Function* function(const void* host);
    // The kernels that cudaFuncSetAttribute has allowed more dynamic shared memory, with a comma between; all but one.
    std::string with_more_shared(const Function& but) const;
    u64 variable(const void* host) const;  // its device address, or 0
    // Null, with a finding, when it cannot be decoded.
    const Program* program(const Function& function, Finding* why_not);
    // For all kernels, those that the host never launched too, in the PTX's order: which of the learner's lines threads
    // came to, as coverage says. What cannot be decoded is left out.
    std::string coverage();

 private:
    void place_variables(Memory& memory);
    void initialise(const ptx::Variable& variable, Allocation& allocation);
    void give_shapes(Program& program) const;

    std::unique_ptr<ptx::Module> module_;
    std::string source_;
    Addresses addresses_;
    std::unordered_map<const void*, Function> functions_;
    std::unordered_map<const void*, std::string> variables_;
    std::map<std::string, Program> programs_;
    std::map<std::string, std::vector<ArrayShape>> shapes_;
};

}  // namespace sim
