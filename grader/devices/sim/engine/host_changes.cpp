#include "host_changes.h"

#include <algorithm>
#include <cstring>

#include "device.h"
#include "tensor_map.h"

namespace sim {

namespace {

template <class Float>
u64 product(u64 first, u64 second) {
    Float value = 0, factor = 0;
    std::memcpy(&value, &first, sizeof value);
    std::memcpy(&factor, &second, sizeof factor);
    value *= factor;
    u64 bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

// A number to SCALE has so many bytes.
u64 changed_number(const HostChange& change, u64 given, u64 taken, u32 bytes = sizeof(float)) {
    switch (change.how) {
        case HostChange::SET:
            return change.number;
        case HostChange::ADD:
            return given + change.number;
        case HostChange::MULTIPLY:
            return given * change.number;
        case HostChange::TAKE:
            return taken;
        case HostChange::SCALE:
            break;
    }
    return bytes == sizeof(double) ? product<double>(given, change.number) : product<float>(given, change.number);
}

u64 number_of(const Geometry& g, u64 place) {
    if (place < HostChange::BLOCK) return g.grid[place];
    if (place < HostChange::SHARED) return g.block[place - HostChange::BLOCK];
    return g.dynamic_shared;
}

// Whether a change is about a kernel, or about the template that the kernel is made of.
bool is_about(const HostChange& change, const std::string& kernel) {
    return change.of == kernel || change.of == kernel.substr(0, kernel.find('<'));
}

// A parameter's number; 0 of one that has more than eight bytes.
u64 number_of(const Program& program, const std::vector<u8>& bytes, u64 nth) {
    u64 number = 0;
    if (nth >= program.parameters.size()) return 0;
    const Extent& e = program.parameters[nth];
    if (e.bytes <= sizeof number && e.offset + e.bytes <= bytes.size())
        std::memcpy(&number, bytes.data() + e.offset, e.bytes);
    return number;
}

}  // namespace

Geometry HostChanges::changed(const std::string& kernel, const Geometry& given) const {
    Geometry made = given;
    for (const HostChange& change : changes_) {
        if (!is_about(change, kernel) || change.place > HostChange::SHARED) continue;
        const u64 number = changed_number(change, number_of(given, change.place), number_of(given, change.number));
        if (change.place < HostChange::BLOCK)
            made.grid[change.place] = u32(number);
        else if (change.place < HostChange::SHARED)
            made.block[change.place - HostChange::BLOCK] = u32(number);
        else
            made.dynamic_shared = number;
    }
    return made;
}

void HostChanges::change_parameters(const Program& program, std::vector<u8>& bytes) const {
    const std::vector<u8> given = bytes;
    for (const HostChange& change : changes_) {
        const u64 nth = u64(change.place) - HostChange::PARAMETER;
        if (!is_about(change, program.name) || change.place < HostChange::PARAMETER) continue;
        if (nth >= program.parameters.size()) continue;
        const Extent& e = program.parameters[nth];
        if (e.bytes > sizeof(u64) || e.offset + e.bytes > bytes.size()) continue;
        const u64 taken = number_of(program, given, change.number - HostChange::PARAMETER);
        const u64 number = changed_number(change, number_of(program, given, nth), taken, u32(e.bytes));
        std::memcpy(bytes.data() + e.offset, &number, e.bytes);
    }
}

u64 HostChanges::bytes(const char* function, u64 given) const {
    u64 made = given;
    for (const HostChange& change : changes_)
        if (change.place == HostChange::BYTES && change.of == function) made = changed_number(change, given, given);
    return made;
}

bool HostChanges::change_map(u64 nth, TensorArguments& arguments, MapNumbers& numbers) const {
    bool changed = false;
    const u32 rank = arguments.rank;
    if (rank == 0 || rank > 5 || !arguments.dims || !arguments.box || (rank > 1 && !arguments.strides)) return false;
    std::copy_n(arguments.dims, rank, numbers.dims);
    std::copy_n(arguments.box, rank, numbers.box);
    const auto given = [&](u64 at) -> u64 {
        if (at < HostChange::BOX) return at < rank ? arguments.dims[at] : 0;
        if (at < HostChange::SWIZZLE) return at - HostChange::BOX < rank ? arguments.box[at - HostChange::BOX] : 0;
        return arguments.swizzle;
    };
    u32 swizzle = arguments.swizzle;
    for (const HostChange& change : changes_) {
        if (change.of != "cuTensorMapEncodeTiled" || change.place / HostChange::MAP != nth) continue;
        const u32 at = change.place % HostChange::MAP;
        const u64 number = changed_number(change, given(at), given(change.number));
        changed = true;
        if (at < HostChange::BOX && at < rank)
            numbers.dims[at] = number;
        else if (at >= HostChange::BOX && at - HostChange::BOX < rank)
            numbers.box[at - HostChange::BOX] = u32(number);
        else if (at == HostChange::SWIZZLE)
            swizzle = u32(number);
    }
    if (!changed) return false;
    // Strides of a tensor without gaps follow from its dimensions.
    u64 old_bytes = 0, bytes = 0;
    for (u32 i = 0; i + 1 < rank; ++i) {
        const u64 stride = arguments.strides[i], dim = arguments.dims[i];
        const bool whole = i == 0 ? dim && stride % dim == 0 : stride == old_bytes * dim;
        bytes = i == 0 ? (whole ? stride / dim * numbers.dims[0] : stride) : (whole ? bytes * numbers.dims[i] : stride);
        old_bytes = stride;
        numbers.strides[i] = bytes;
    }
    arguments.dims = numbers.dims;
    arguments.strides = numbers.strides;
    arguments.box = numbers.box;
    arguments.swizzle = swizzle;
    return true;
}

bool HostChanges::changes_shared(const std::string& kernel) const {
    for (const HostChange& change : changes_)
        if (change.place == HostChange::SHARED && is_about(change, kernel)) return true;
    return false;
}

}  // namespace sim
