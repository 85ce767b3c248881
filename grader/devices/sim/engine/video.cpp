// video: arithmetic on the bytes and halves of registers
//
// PTX ISA 9.7.18 (scalar video instructions) and 9.7.19 (vadd2, vadd4, ...). Where ptxas makes something else of a form
// than the ISA says, there is no entry: a minimum or maximum with c of unsigned results or of operands of two signs,
// some .sat to u32, vshl.sat, vmad of two signs, vmad of u32 with .sat or a scale. A result that is saturated does not
// become a part of a register, and none becomes the upper half.
#include <algorithm>
#include <cstring>

#include "decode.h"

namespace sim {

namespace {

enum class Op : u8 {
    add,
    sub,
    average,
    difference,
    minimum,
    maximum,
    shift_left,
    shift_right,
    mad,
    eq,
    ne,
    lt,
    le,
    gt,
    ge
};
enum class Second : u8 { merge, add, minimum, maximum };  // what becomes of a result and c

// What the words of the opcode and the parts of the operands say. a and b: the first byte, in {b, a}, of what each part
// of the result is made of, four bits for each part.
struct Video {
    u16 a, b;
    u8 a_bytes : 3, b_bytes : 3, wraps : 1, plus_one : 1;
    u8 d_bytes : 3, d_at : 2, d_signed : 1, a_signed : 1, b_signed : 1;
    u8 mask : 4, second : 2, saturates : 1, unused : 1;  // mask: the parts of the result that c does not keep
    u8 scale;
};
static_assert(sizeof(Video) == sizeof(Instruction::immediate));

s64 extended(u64 word, u32 at, u32 bytes, bool is_signed) {
    const u64 bits = word >> 8 * at & ((u64(1) << 8 * bytes) - 1);
    const u64 sign = u64(1) << (8 * bytes - 1);
    return is_signed ? s64((bits ^ sign) - sign) : s64(bits);
}

// tmp of the ISA's pseudocode.
s64 result(const Video& v, Op op, s64 a, s64 b, s64 c) {
    const u32 shift = v.wraps ? u32(b) & 31 : u32(b < 32 ? b : 32);
    switch (op) {
        case Op::add:
            return a + b;
        case Op::sub:
            return a - b;
        case Op::average:
            return (a + b + (a + b >= 0)) >> 1;
        case Op::difference:
            return a < b ? b - a : a - b;
        case Op::minimum:
            return a < b ? a : b;
        case Op::maximum:
            return a > b ? a : b;
        case Op::shift_left:
            return s64(u64(a) << shift);
        case Op::shift_right:
            return a >> shift;
        case Op::mad:
            return s64(u64(a) * u64(b) + u64(c) + v.plus_one);
        case Op::eq:
            return a == b;
        case Op::ne:
            return a != b;
        case Op::lt:
            return a < b;
        case Op::le:
            return a <= b;
        case Op::gt:
            return a > b;
        case Op::ge:
            return a >= b;
    }
    return 0;
}

s64 saturated(const Video& v, s64 value) {
    const s64 range = s64(1) << 8 * v.d_bytes;
    const s64 low = v.d_signed ? -range / 2 : 0, high = low + range - 1;
    return value < low ? low : value > high ? high : value;
}

u32 value_of(const Video& v, Op op, u32 a, u32 b, u32 c) {
    const u64 both = u64(b) << 32 | a;
    u32 d = c;
    for (u32 i = 0; i < 4 && v.mask >> i; ++i) {
        if (!(v.mask >> i & 1)) continue;
        const s64 x = extended(both, v.a >> 4 * i & 7, v.a_bytes, v.a_signed);
        const s64 y = extended(both, v.b >> 4 * i & 7, v.b_bytes, v.b_signed);
        const s64 z = extended(c, 0, 4, v.d_signed);
        s64 t = result(v, op, x, y, z);
        if (op == Op::mad) t >>= v.scale;
        if (v.saturates) t = saturated(v, t);
        const u32 at = 8 * (v.d_at + i * v.d_bytes);
        const u32 bits = v.d_bytes == 4 ? ~u32(0) : ((u32(1) << 8 * v.d_bytes) - 1) << at;
        switch (Second(v.second)) {
            case Second::merge:
                d = (d & ~bits) | (u32(t) << at & bits);
                break;
            case Second::add:
                d += u32(t);
                break;
            case Second::minimum:
                d = u32(s32(t) < s32(c) ? s32(t) : s32(c));
                break;
            case Second::maximum:
                d = u32(s32(t) > s32(c) ? s32(t) : s32(c));
                break;
        }
    }
    return d;
}

void run_video(Warp& warp, const Instruction& in, Mask mask) {
    Video v;
    std::memcpy(&v, &in.immediate, sizeof v);
    u32* d = warp.row<u32>(in.operand[0]);
    const u32 *a = warp.row<const u32>(in.operand[1]), *b = warp.row<const u32>(in.operand[2]);
    const u32* c = warp.row<const u32>(in.operand[3]);
    each_lane(mask, [&](int l) { d[l] = value_of(v, Op(in.option), a[l], b[l], c[l]); });
}

// ---- what an instruction says

u32 parts_of(std::string_view name) {
    return name.back() == '2' ? 2 : name.back() == '4' ? 4 : 1;
}

Video described(std::string_view opcode) {
    const auto words = words_of(opcode);
    const bool compares = words[0].substr(0, 4) == "vset";  // whose result has no type: it is unsigned
    Video v{};
    v.d_signed = !compares && words[1] == "s32";
    v.a_signed = words[compares ? 1 : 2] == "s32", v.b_signed = words[compares ? 2 : 3] == "s32";
    for (std::string_view word : words) {
        v.wraps |= word == "wrap", v.plus_one |= word == "po", v.saturates |= word == "sat";
        if (word == "shr7") v.scale = 7;
        if (word == "shr15") v.scale = 15;
        if (word == "add") v.second = u8(Second::add);
        if (word == "min") v.second = u8(Second::minimum);
        if (word == "max") v.second = u8(Second::maximum);
    }
    return v;
}

// "b2" of a scalar instruction: the first byte and how many there are.
struct Part {
    u32 at = 0, bytes = 4;
};
Part scalar_part(const Decoder& d, const ptx::Operand& operand) {
    const std::string_view name = operand.part;
    if (name.empty()) return {};
    const u32 bytes = name[0] == 'b' ? 1 : 2, number = u32(name.back() - '0');
    if (name.size() != 2 || number * bytes >= 4) d.unsupported("the part ." + std::string(name) + " of an operand");
    return {number * bytes, bytes};
}

// "h32" of an instruction on two or four parts: the numbers of the parts, the last one's first; four bits each.
u32 numbers(const Decoder& d, const ptx::Operand& operand, u32 parts, u32 by_default) {
    const std::string_view name = operand.part;
    if (name.empty()) return by_default;
    u32 found = 0;
    for (char digit : name.substr(1)) found = found << 4 | u32(digit - '0');
    if (name[0] != (parts == 4 ? 'b' : 'h') || name.size() != parts + 1)
        d.unsupported("the part ." + std::string(name) + " of an operand");
    return found;
}

void select_scalar(const Decoder& d, const ptx::Instruction& in, Video& v) {
    const Part to = scalar_part(d, in.operands[0]);
    const Part a = scalar_part(d, in.operands[1]), b = scalar_part(d, in.operands[2]);
    v.mask = 1, v.d_at = to.at & 3, v.d_bytes = to.bytes & 7;
    v.a = u16(a.at), v.a_bytes = a.bytes & 7;
    v.b = u16(4 + b.at), v.b_bytes = b.bytes & 7;
}

void select_parts(const Decoder& d, const ptx::Instruction& in, Video& v, u32 parts) {
    const u32 bytes = 4 / parts;
    const u32 a = numbers(d, in.operands[1], parts, parts == 4 ? 0x3210 : 0x10);
    const u32 b = numbers(d, in.operands[2], parts, parts == 4 ? 0x7654 : 0x32);
    for (u32 i = 0; i < parts; ++i) {
        const u32 from_a = a >> 4 * i & 15, from_b = b >> 4 * i & 15;
        if (from_a >= 2 * parts || from_b >= 2 * parts) d.unsupported("a part of an operand");
        v.a = u16(v.a | from_a * bytes << 4 * i), v.b = u16(v.b | from_b * bytes << 4 * i);
    }
    const std::string_view mask = in.operands[0].part;
    for (char digit : mask.substr(mask.empty() ? 0 : 1)) {
        if (u32(digit - '0') >= parts) d.unsupported("the part ." + std::string(mask) + " of an operand");
        v.mask = u8(v.mask | 1u << (digit - '0')) & 15;
    }
    if (mask.empty()) v.mask = parts == 4 ? 15 : 3;
    v.d_bytes = v.a_bytes = v.b_bytes = bytes & 7;
}

ptx::Operand whole(ptx::Operand operand) {
    operand.part = {};
    return operand;
}

}  // namespace

void lower_video(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    const Shape word = shape_of<u32>();
    const u32 parts = parts_of(in.opcode.substr(0, in.opcode.find('.')));
    Video v = described(entry.form);  // whose modifiers are in the order of the ISA
    const bool merges = parts == 1 && !in.operands.empty() && !in.operands[0].part.empty();
    const bool takes_c = entry.operation.signature.count == 4 || merges;
    d.require(in, takes_c ? 4 : 3);
    const bool has_parts = Second(v.second) == Second::merge && !v.saturates;
    if (merges && !has_parts) d.unsupported(std::string(in.opcode) + " to a part of a register");
    if (merges && in.operands[0].part == "h1")
        d.unsupported(std::string(in.opcode) + " to the upper half of a register");
    parts == 1 ? select_scalar(d, in, v) : select_parts(d, in, v, parts);
    Instruction out = d.prototype(in, entry);
    out.option = entry.option;
    std::memcpy(&out.immediate, &v, sizeof v);
    out.operand[3] = takes_c ? d.source(in.operands[3], word) : d.constant(0, 4);
    out.operand[2] = d.source(whole(in.operands[2]), word);
    out.operand[1] = d.source(whole(in.operands[1]), word);
    out.operand[0] = d.destination(whole(in.operands[0]), word);
    d.emit(out);
}

namespace {

using Two = u32 (*)(u32, u32);
using Three = u32 (*)(u32, u32, u32);

void add(Table& t, std::initializer_list<std::string_view> pieces, bool takes_c, Op op) {
    const Signature signature = takes_c ? signature_of(Three()) : signature_of(Two());
    t.add(pieces, {run_video, signature}, lower_video, Flow::next, u8(op));
}

constexpr std::string_view TYPES = ".{u32,s32}.{u32,s32}.{u32,s32}";

// Signs of a and b by the type of the result, as far as ptxas does what the ISA says.
struct Signs {
    std::string_view saturated;  // to u32
    std::string_view ordered;    // with a minimum or maximum, not saturated; none: ""
};
constexpr std::string_view ANY = ".{u32,s32}.{u32,s32}", SIGNED = ".s32.s32";

void arithmetic(Table& t, std::string_view name, Op op, Signs signs) {
    for (const std::string_view second : {"", ".add"}) {
        const bool takes_c = !second.empty();
        add(t, {name, TYPES, second}, takes_c, op);
        add(t, {name, ".s32", ANY, ".sat", second}, takes_c, op);
        add(t, {name, ".u32", signs.saturated, ".sat", second}, takes_c, op);
    }
    add(t, {name, ".s32", ANY, ".sat.{min,max}"}, true, op);
    if (!signs.ordered.empty()) add(t, {name, ".s32", signs.ordered, ".{min,max}"}, true, op);
    add(t, {name, "{2,4}", TYPES, "{,.sat,.add}"}, true, op);
}

void comparison(Table& t, std::string_view name, Op op) {
    add(t, {"vset.{u32,s32}.{u32,s32}.", name}, false, op);
    add(t, {"vset.{u32,s32}.{u32,s32}.", name, ".add"}, true, op);
    add(t, {"vset{2,4}.{u32,s32}.{u32,s32}.", name, "{,.add}"}, true, op);
}

}  // namespace

void video_entries(Table& t) {
    arithmetic(t, "vadd", Op::add, {SIGNED, ANY});
    arithmetic(t, "vsub", Op::sub, {"{.u32.u32,.s32.u32,.s32.s32}", ANY});
    arithmetic(t, "vabsdiff", Op::difference, {"{.u32.u32,.s32.s32}", ""});
    arithmetic(t, "vmin", Op::minimum, {ANY, SIGNED});
    arithmetic(t, "vmax", Op::maximum, {ANY, SIGNED});
    add(t, {"vavrg{2,4}", TYPES, "{,.sat,.add}"}, true, Op::average);
    add(t, {"vshl.{u32,s32}.{u32,s32}.u32.{clamp,wrap}"}, false, Op::shift_left);
    add(t, {"vshl.{u32,s32}.{u32,s32}.u32.{clamp,wrap}.add"}, true, Op::shift_left);
    add(t, {"vshr.{u32,s32}.{u32,s32}.u32{,.sat}.{clamp,wrap}"}, false, Op::shift_right);
    add(t, {"vshr.{u32,s32}.{u32,s32}.u32{,.sat}.{clamp,wrap}.add"}, true, Op::shift_right);
    add(t, {"vmad.u32.u32.u32{,.po}"}, true, Op::mad);
    add(t, {"vmad.s32.s32.s32{,.po}{,.sat}{,.shr7,.shr15}"}, true, Op::mad);
    comparison(t, "eq", Op::eq);
    comparison(t, "ne", Op::ne);
    comparison(t, "lt", Op::lt);
    comparison(t, "le", Op::le);
    comparison(t, "gt", Op::gt);
    comparison(t, "ge", Op::ge);
}

}  // namespace sim
