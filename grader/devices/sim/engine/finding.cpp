#include "finding.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>

namespace sim {

namespace {

struct KindName {
    FindingKind kind;
    const char* name;
};
constexpr KindName KIND_NAMES[] = {
    {FindingKind::out_of_bounds, "out of bounds"},
    {FindingKind::misaligned, "misaligned"},
    {FindingKind::uninitialised, "uninitialised"},
    {FindingKind::race, "race"},
    {FindingKind::deadlock, "deadlock"},
    {FindingKind::launch_failed, "launch failed"},
    {FindingKind::crash, "crash"},
    {FindingKind::time_out, "time-out"},
    {FindingKind::modified_input, "modified its input"},
    {FindingKind::unsupported, "unsupported"},
    {FindingKind::divergent_barrier, "divergent barrier"},
};

constexpr bool each_in_its_place() {
    for (int i = 0; i < FINDING_KINDS; ++i)
        if (int(KIND_NAMES[i].kind) != i) return false;
    return sizeof KIND_NAMES == FINDING_KINDS * sizeof KIND_NAMES[0];
}
static_assert(each_in_its_place());

s64 floor_divide(s64 a, s64 b) {
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

std::string elements(u64 count) {
    return count == 1 ? "one element" : std::to_string(count) + " elements";
}

std::string range(const std::string& name, s64 index, u64 count) {
    const std::string first = name + "[" + std::to_string(index);
    return count == 1 ? first + "]" : first + ".." + std::to_string(index + s64(count) - 1) + "]";
}

// Of an access without a type: words, or what it moves where that is less, or 8 bytes.
u32 item_of(u32 access_bytes) {
    return access_bytes > 4 && access_bytes != 8 ? 4 : access_bytes;
}

std::string row_by_row(const ArrayShape& shape) {
    return shape.sizes.size() < 2 ? "" : " (counted row by row)";
}

std::string full_name(const std::string& symbol) {
    int status = 0;
    char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
    const std::string name = status == 0 ? text : symbol;
    std::free(text);
    return name;
}

}  // namespace

const char* name_of(FindingKind kind) {
    return KIND_NAMES[int(kind)].name;
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const unsigned char c : text) {
        char escape[8];
        if (c == '"' || c == '\\') {
            out += '\\', out += char(c);
        } else if (c < 0x20) {
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            out += escape;
        } else {
            out += char(c);
        }
    }
    return out + "\"";
}

std::string triple(const u32* v) {
    return "[" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + "]";
}

Place inside(const std::string& name, s64 offset, u32 itemsize, u32 access_bytes) {
    const u64 count = access_bytes > itemsize ? access_bytes / itemsize : 1;
    const s64 index = floor_divide(offset, itemsize);
    return {range(name, index, count) + (count > 1 ? " (" + std::to_string(access_bytes) + " bytes)" : ""), index};
}

Place outside(const std::string& name, s64 offset, u64 bytes_in_all, u32 itemsize, u32 access_bytes) {
    Place place = inside(name, offset, itemsize, access_bytes);
    const u64 count = bytes_in_all / itemsize;
    const std::string size = " (" + plural(count, "element") + ")";
    if (offset < 0) {
        place.text += ", " + elements(u64(-place.index)) + " before the start of " + name + size;
        return place;
    }
    const s64 last = floor_divide(offset + s64(access_bytes) - 1, itemsize);
    place.text += ", " + elements(u64(std::max<s64>(last - s64(count) + 1, 1))) + " past the end of " + name + size;
    return place;
}

ArrayShape fitted(const ArrayShape& declared, u64 bytes) {
    ArrayShape shape = declared;
    u64 row = shape.itemsize;
    for (size_t i = 1; i < shape.sizes.size(); ++i) row *= shape.sizes[i];
    if (row == 0 || bytes % row != 0 || bytes == 0) return {};
    if (shape.sizes[0] && shape.sizes[0] != bytes / row) return {};
    shape.sizes[0] = u32(bytes / row);
    return shape;
}

Place inside(const std::string& name, const ArrayShape& shape, s64 offset, u32 access_bytes) {
    if (shape.itemsize && shape.sizes.empty()) return inside(name, offset, shape.itemsize, access_bytes);
    if (shape.itemsize == 0 || offset < 0) {
        Place place = inside(name, offset, item_of(access_bytes), access_bytes);
        place.text += row_by_row(shape);
        return place;
    }
    const u32 item = shape.itemsize;
    const s64 index = offset / item;
    std::string indices;
    u64 left = u64(index), count = access_bytes > item ? access_bytes / item : 1;
    for (size_t i = shape.sizes.size(); i-- > 1; left /= shape.sizes[i])
        indices.insert(0, range("", s64(left % shape.sizes[i]), i + 1 == shape.sizes.size() ? count : 1));
    const std::string moved = count > 1 ? " (" + std::to_string(access_bytes) + " bytes)" : "";
    return {range(name, s64(left), 1) + indices + moved, index};
}

Place outside(const std::string& name, const ArrayShape& shape, s64 offset, u64 bytes_in_all, u32 access_bytes) {
    if (shape.itemsize && shape.sizes.empty()) return outside(name, offset, bytes_in_all, shape.itemsize, access_bytes);
    if (shape.itemsize == 0 || offset < 0) {
        Place place = outside(name, offset, bytes_in_all, item_of(access_bytes), access_bytes);
        place.text += row_by_row(shape);
        return place;
    }
    Place place = inside(name, shape, offset, access_bytes);
    const s64 count = s64(bytes_in_all / shape.itemsize);
    const s64 last = (offset + s64(access_bytes) - 1) / shape.itemsize;
    std::string sizes;
    for (const u32 size : shape.sizes) sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
    place.text += ", " + elements(u64(std::max<s64>(last - count + 1, 1))) + " past the end of " + name + " (" + sizes +
                  " elements)";
    return place;
}

std::string plural(u64 count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string triple_name(u32 x, u32 y, u32 z) {
    return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

std::string thread_name(u32 x, u32 y, u32 z) {
    return "thread " + triple_name(x, y, z);
}

std::string demangled(const std::string& symbol) {
    std::string name = full_name(symbol);
    int depth = 0;
    for (size_t i = 0; i < name.size(); ++i) {
        depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
        if (name[i] == '(' && depth == 0 && name.compare(i, 21, "(anonymous namespace)") != 0) {
            name.resize(i);
            break;
        }
    }
    return name.compare(0, 5, "void ") == 0 ? name.substr(5) : name;
}

std::string variable_name(const std::string& symbol) {
    const std::string name = full_name(symbol);
    const size_t colon = name.rfind("::");
    return colon == std::string::npos ? name : name.substr(colon + 2);
}

namespace {

// The members of its JSON object, each behind a comma.
std::string members(const Site& s) {
    std::string out;
    if (!s.kernel.empty()) out += ",\"kernel\":" + quoted(s.kernel);
    if (!s.file.empty()) out += ",\"file\":" + quoted(s.file);
    if (s.line) out += ",\"line\":" + std::to_string(s.line);
    for (size_t i = 0; i < s.callers.size(); ++i)
        out += (i ? "," : ",\"callers\":[") + std::to_string(s.callers[i]) + (i + 1 == s.callers.size() ? "]" : "");
    if (s.has_thread) out += ",\"block\":" + triple(s.block) + ",\"thread\":" + triple(s.thread);
    return out;
}

}  // namespace

std::string json(const Site& site) {
    const std::string out = members(site);
    return "{" + (out.empty() ? out : out.substr(1)) + "}";
}

namespace {

std::string list(const char* name, const std::vector<std::string>& sentences) {
    std::string out;
    for (const std::string& sentence : sentences) out += (out.empty() ? "" : ",") + quoted(sentence);
    return out.empty() ? out : ",\"" + std::string(name) + "\":[" + out + "]";
}

}  // namespace

namespace {

std::string list(const std::vector<Side>& sides) {
    std::string out;
    for (const Side& side : sides)
        out += (out.empty() ? "{" : ",{") + ("\"does\":" + quoted(side.does)) + members(side) + "}";
    return out.empty() ? out : ",\"sides\":[" + out + "]";
}

}  // namespace

std::string json(const Finding& f) {
    std::string out = "{\"kind\":" + quoted(name_of(f.kind)) + ",\"message\":" + quoted(f.message) + members(f);
    if (!f.buffer.empty()) out += ",\"buffer\":" + quoted(f.buffer);
    if (f.has_index) out += ",\"index\":" + std::to_string(f.index);
    if (!f.place.empty()) out += ",\"place\":" + quoted(f.place);
    return out + list(f.sides) + list("notes", f.notes) + list("phases", f.phases) + "}";
}

}  // namespace sim
