// reduction: what reductions in bulk do with each value, atomically
#pragma once
#include <string>

#include "copies.h"
#include "tensor_map.h"

namespace sim {

// By the operation's name in PTX: "add", "min", "max", "inc", "dec", "and", "or", "xor". Null: not of that type.
Combine combine_of(const std::string& operation, TensorType type);

// The same of an instruction whose form ends in its type, and has the operation as a word; and the bytes of a value.
Combine combine_of_form(const std::string& form, u32* bytes);

}  // namespace sim
