// division: integer div and rem, and who divides by zero
#include <fstream>
#include <map>
#include <mutex>

#include "block.h"
#include "operation.h"

namespace sim {

namespace {

// Division by zero is undefined in PTX; the card returns all ones, and so it
// does for the remainder.
template <class T>
T divide(T a, T b) {
    if (b == 0) return T(~T(0));
    if (std::is_signed_v<T> && b == T(-1)) return T(0 - std::make_unsigned_t<T>(a));
    return T(a / b);
}
template <class T>
T remainder(T a, T b) {
    if (b == 0) return T(~T(0));
    if (std::is_signed_v<T> && b == T(-1)) return 0;
    return T(a % b);
}

bool has_division(const SourceLine& where) {
    std::ifstream file(where.file);
    std::string line;
    for (u32 i = 0; i < where.line; ++i) std::getline(file, line);
    const std::string code = line.substr(0, line.find("//"));
    return code.find_first_of("/%") != std::string::npos;
}

// nvcc divides too, to count the turns of a loop: such a division is not the
// learner's, and what comes of a step of zero shows by itself.
bool written_by_learner(const SourceLine& where) {
    static std::mutex mutex;
    static std::map<u32, bool> known;  // by line; a process has one source file
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(where.line);
    if (found != known.end()) return found->second;
    return known[where.line] = has_division(where);
}

template <class T>
void divided(Warp& warp, const Instruction& in, Mask mask) {
    const T* b = warp.row<const T>(in.operand[2]);
    Mask zero = 0;
    each_lane(mask, [&](int l) { zero |= Mask(b[l] == 0) << l; });
    Block& block = *warp.block;
    if (zero && written_by_learner(block.line_of(warp.here)))
        block.stop_at(block.at(warp, warp.here, __builtin_ctz(zero), FindingKind::crash, "divides by zero"));
    Called<T (*)(T, T)>::run(warp, in, mask);
}

template <class T, T (*F)(T, T)>
void entry(Table& t, std::string_view name, std::string_view type) {
    Operation operation = lanewise_cold<F>();
    operation.run = divided<T>;
    t.add({name, type}, operation);
}
template <class T>
void entries(Table& t, std::string_view type) {
    entry<T, divide<T>>(t, "div.", type);
    entry<T, remainder<T>>(t, "rem.", type);
}

}  // namespace

void division_entries(Table& t) {
    entries<u16>(t, "u16"), entries<s16>(t, "s16");
    entries<u32>(t, "u32"), entries<s32>(t, "s32");
    entries<u64>(t, "u64"), entries<s64>(t, "s64");
}

}  // namespace sim
