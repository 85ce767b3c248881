#include "builtins.h"

#include <cstdio>

#include "block.h"
#include "heap.h"
#include "operation.h"
#include "check_access.h"

namespace sim {

namespace {

constexpr u64 LONGEST = 4096;  // bytes of one string

std::string text_at(Warp& warp, int lane, u64 address) {
    u64 available = 0;
    const u8* bytes = peek(warp, lane, address, &available);
    std::string text;
    for (u64 i = 0; bytes && i < available && i < LONGEST && bytes[i]; ++i) text += char(bytes[i]);
    return bytes ? text : "(null)";
}

template <class T>
T argument(const Warp& warp, int lane, const CallSite& site, size_t i) {
    T value{};
    if (i < site.argument_offsets.size())
        std::memcpy(&value, warp.local + u64(lane) * warp.local_bytes + site.argument_offsets[i], sizeof value);
    return value;
}

// The arguments of printf lie one after the other, each aligned to its size.
struct Arguments {
    Warp& warp;
    int lane;
    u64 at;

    template <class T>
    T next() {
        at = (at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
        u64 available = 0;
        const u8* bytes = peek(warp, lane, at, &available);
        T value{};
        if (bytes && available >= sizeof(T)) std::memcpy(&value, bytes, sizeof(T));
        at += sizeof(T);
        return value;
    }
};

template <class T>
std::string formatted(const std::string& specification, T value) {
    char text[512];
    std::snprintf(text, sizeof text, specification.c_str(), value);
    return text;
}

std::string convert(const std::string& specification, Arguments& arguments) {
    const char conversion = specification.back();
    const bool wide = specification.find_first_of("lzjt") != std::string::npos;
    switch (conversion) {
        case 'd':
        case 'i':
        case 'u':
        case 'x':
        case 'X':
        case 'o':
        case 'c':
            return wide ? formatted(specification, arguments.next<u64>())
                        : formatted(specification, arguments.next<u32>());
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
        case 'a':
        case 'A':
            return formatted(specification, arguments.next<f64>());
        case 's':
            return formatted(specification, text_at(arguments.warp, arguments.lane, arguments.next<u64>()).c_str());
        case 'p':
            return formatted("%#llx", static_cast<unsigned long long>(arguments.next<u64>()));
        default:
            return specification;
    }
}

// One conversion of a format, from '%' to its letter; `*` takes its number from
// the arguments.
std::string specification_at(const std::string& format, size_t& i, Arguments& arguments) {
    std::string specification = "%";
    for (++i; i < format.size(); ++i) {
        if (format[i] == '*') {
            specification += std::to_string(arguments.next<s32>());
            continue;
        }
        specification += format[i];
        if (std::string("-+ #0123456789.hlzjt").find(format[i]) == std::string::npos) break;
    }
    return specification;
}

s32 print(Warp& warp, int lane, const CallSite& site) {
    const std::string format = text_at(warp, lane, argument<u64>(warp, lane, site, 0));
    Arguments arguments{warp, lane, argument<u64>(warp, lane, site, 1)};
    std::string out;
    s32 count = 0;
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%') {
            out += format[i];
        } else if (i + 1 < format.size() && format[i + 1] == '%') {
            out += '%', ++i;
        } else {
            out += convert(specification_at(format, i, arguments), arguments);
            ++count;
        }
    }
    warp.launch->print(out);
    return count;
}

template <class T>
void give_back(Warp& warp, int lane, const CallSite& site, T value) {
    for (const auto& result : site.results) {
        const u64 at = u64(lane) * warp.local_bytes + result.to;
        std::memcpy(warp.local + at, &value, sizeof value);
        std::memset(warp.local_shadow + at, 1, sizeof value);
    }
}

void vprintf(Warp& warp, const CallSite& site, Mask mask) {
    each_lane(mask, [&](int l) { give_back(warp, l, site, print(warp, l, site)); });
}

void allocate(Warp& warp, const CallSite& site, Mask mask) {
    each_lane(mask, [&](int l) { give_back(warp, l, site, warp.launch->heap->take(argument<u64>(warp, l, site, 0))); });
}

void release(Warp& warp, const CallSite& site, Mask mask) {
    each_lane(mask, [&](int l) {
        const u64 address = argument<u64>(warp, l, site, 0);
        if (!address || warp.launch->heap->give(address)) return;
        Block& block = *warp.block;
        block.stop_at(block.at(
            warp, warp.here, l, FindingKind::crash, "frees what malloc did not give, or what was freed already"));
    });
}

void assert_failed(Warp& warp, const CallSite& site, Mask mask) {
    const int l = __builtin_ctz(mask);
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, l, FindingKind::crash,
        "assertion `" + text_at(warp, l, argument<u64>(warp, l, site, 0)) + "` failed"));
}

struct Builtin {
    const char* name;
    void (*run)(Warp&, const CallSite&, Mask);
};
constexpr Builtin BUILTINS[] = {
    {"vprintf", vprintf}, {"__assertfail", assert_failed}, {"malloc", allocate}, {"free", release}};

}  // namespace

bool is_builtin(const std::string& function) {
    for (auto& known : BUILTINS)
        if (function == known.name) return true;
    return false;
}

void call_builtin(Warp& warp, const CallSite& site, Mask mask) {
    for (auto& known : BUILTINS)
        if (site.callee == known.name) known.run(warp, site, mask);
}

}  // namespace sim
