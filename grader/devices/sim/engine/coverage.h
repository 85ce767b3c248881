// coverage: which of a kernel's lines threads came to, and which of its loops went round
#pragma once
#include <string>

#include "program.h"

namespace sim {

// A JSON object: "kernel", "launched", "lines" with [line, 1 where a thread came to any instruction of it else 0], and
// "loops" with [line, what a thread did there at most: 0 it never came, 1 it went through once, 2 it went round again].
std::string coverage(const Program& program, const std::string& source);

}  // namespace sim
