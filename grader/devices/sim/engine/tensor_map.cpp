#include "tensor_map.h"

#include <algorithm>

#include "finding.h"

namespace sim {

namespace {

struct TypeRow {
    const char* name;
    u32 bytes;
    bool floating;
};
constexpr TypeRow TYPES[TENSOR_TYPES] = {
    {"u8", 1, false},  {"u16", 2, false}, {"u32", 4, false}, {"s32", 4, false}, {"u64", 8, false},
    {"s64", 8, false}, {"f16", 2, true},  {"f32", 4, true},  {"f64", 8, true},  {"bf16", 2, true},
    {"f32", 4, true},  {"tf32", 4, true}, {"tf32", 4, true},
};

constexpr u32 ALIGNMENT = 16;
constexpr u64 MOST_ELEMENTS = u64(1) << 32, MOST_STRIDE = u64(1) << 40;
constexpr u32 MOST_PIXELS = 1024, LEAST_PIXEL_RANK = 3;
constexpr int MOST_CORNER[PIXEL_DIMENSIONS] = {0x7fff, 0x7f, 0xf};  // in tensors of three, four and five dimensions
constexpr u32 MOST_BOX = 256, MOST_ELEMENT_STRIDE = 8, LAST_SWIZZLE = 3;

enum Reason : u8 {
    GOOD,
    BAD_TYPE,
    BAD_RANK,
    BAD_BASE,
    BAD_DIM,
    BAD_STRIDE,
    BAD_BOX,
    BAD_INNER,
    BAD_ELEMENT_STRIDE,
    WIDE_FOR_SWIZZLE,
    BAD_SWIZZLE,
    BAD_FILL,
    INTERLEAVED,
    BAD_PIXEL_RANK,
    BAD_PIXELS,
    BAD_CHANNELS,
    BAD_CORNER,
    EMPTY_PIXEL_BOX,
};

Reason reason_of_pixels(const TensorArguments& a) {
    if (a.box[0] == 0 || a.box[0] > MOST_BOX) return BAD_CHANNELS;
    if (a.box[1] == 0 || a.box[1] > MOST_PIXELS) return BAD_PIXELS;
    const int most = MOST_CORNER[a.rank - LEAST_PIXEL_RANK];
    for (u32 i = 0; i + 2 < a.rank; ++i) {
        for (const int corner : {a.lower[i], a.upper[i]})
            if (corner < -most - 1 || corner > most) return BAD_CORNER;
        if (s64(a.dims[i + 1]) + a.upper[i] <= a.lower[i]) return EMPTY_PIXEL_BOX;
    }
    return GOOD;
}

Reason reason_of(const TensorArguments& a) {
    if (a.type >= u32(TENSOR_TYPES)) return BAD_TYPE;
    if (a.rank < 1 || a.rank > TENSOR_DIMENSIONS) return BAD_RANK;
    if (a.lower && a.rank < LEAST_PIXEL_RANK) return BAD_PIXEL_RANK;
    if (a.interleave) return INTERLEAVED;
    if (a.base % ALIGNMENT) return BAD_BASE;
    for (u32 i = 0; i < a.rank; ++i) {
        if (a.dims[i] == 0 || a.dims[i] > MOST_ELEMENTS) return BAD_DIM;
        if (i > 0 && (a.strides[i - 1] % ALIGNMENT || a.strides[i - 1] >= MOST_STRIDE)) return BAD_STRIDE;
        if (!a.lower && (a.box[i] == 0 || a.box[i] > MOST_BOX)) return BAD_BOX;
        if (a.element_strides[i] == 0 || a.element_strides[i] > MOST_ELEMENT_STRIDE) return BAD_ELEMENT_STRIDE;
    }
    if (const Reason reason = a.lower ? reason_of_pixels(a) : GOOD) return reason;
    const u32 inner = a.box[0] * TYPES[a.type].bytes;
    if (inner % ALIGNMENT) return BAD_INNER;
    if (a.swizzle > LAST_SWIZZLE) return BAD_SWIZZLE;
    if (a.swizzle && inner > (ALIGNMENT << a.swizzle)) return WIDE_FOR_SWIZZLE;
    if (a.fill > 1 || (a.fill && !TYPES[a.type].floating)) return BAD_FILL;
    return GOOD;
}

}  // namespace

u32 bytes_of(TensorType type) {
    return TYPES[int(type)].bytes;
}

u32 TensorMap::rows() const {
    if (im2col) return box[1];
    u32 count = 1;
    for (int i = 1; i < rank; ++i) count *= steps(i);
    return count;
}

std::string TensorMap::shape() const {
    std::string text;
    for (int i = rank; i-- > 0;) text += std::to_string(dims[i]) + (i ? " x " : " ");
    return text + TYPES[int(type)].name;
}

// Refused arguments are kept as far as its message tells of them.
TensorMap encode(const TensorArguments& a) {
    TensorMap map = {};
    map.magic = TensorMap::MAGIC;
    map.refusal = reason_of(a);
    map.base = a.base;
    map.type = TensorType(std::min(a.type, u32(TENSOR_TYPES - 1)));
    map.rank = u8(std::min(a.rank, u32(TENSOR_DIMENSIONS)));
    for (int i = 0; i < map.rank; ++i) {
        map.dims[i] = a.dims[i];
        if (i > 0) map.strides[i - 1] = a.strides[i - 1];
        if (!a.lower || i < 2) map.box[i] = u16(std::min(a.box[i], u32(0xffff)));
        map.element_strides[i] = u8(std::min(a.element_strides[i], u32(0xff)));
    }
    map.im2col = a.lower != nullptr;
    for (int i = 0; map.im2col && i + 2 < map.rank; ++i) {
        map.lower[i] = s16(std::clamp(a.lower[i], -0x8000, 0x7fff));
        map.upper[i] = s16(std::clamp(a.upper[i], -0x8000, 0x7fff));
    }
    map.element_strides[0] = 1;  // that of the first dimension counts only where channels are interleaved
    map.swizzle = u8(a.swizzle);
    map.fills_nan = u8(a.fill);
    return map;
}

void change(TensorMap& map, MapField field, u32 place, u64 value) {
    map.magic = TensorMap::MAGIC;
    map.changed = 1;
    switch (field) {
        case MapField::global_address:
            map.base = value;
            break;
        case MapField::rank:  // counted from 0
            map.rank = u8(value + 1);
            break;
        case MapField::box_dim:
            map.box[place] = u16(std::min(value, u64(0xffff)));
            break;
        case MapField::global_dim:
            map.dims[place] = value;
            break;
        case MapField::global_stride:
            map.strides[place] = value;
            break;
        case MapField::element_stride:
            if (place > 0) map.element_strides[place] = u8(std::min(value, u64(0xff)));
            break;
        case MapField::elemtype:
            map.type = PTX_TYPES[value];
            break;
        case MapField::interleave_layout:  // none
            break;
        case MapField::swizzle_mode:
            map.swizzle = u8(value);
            break;
        case MapField::fill_mode:
            map.fills_nan = u8(value);
            break;
    }
    map.element_strides[0] = 1;
    u32 box[TENSOR_DIMENSIONS], element_strides[TENSOR_DIMENSIONS];
    std::copy_n(map.box, TENSOR_DIMENSIONS, box);
    std::copy_n(map.element_strides, TENSOR_DIMENSIONS, element_strides);
    map.refusal = reason_of(
        {u32(map.type), map.rank, map.base, map.dims, map.strides, box, element_strides, 0, map.swizzle, 0,
         map.fills_nan});
}

namespace {

// "60 bytes (15 f32)"
std::string in_bytes(const TensorMap& map, u64 bytes) {
    const std::string text = plural(bytes, "byte");
    if (bytes % map.item()) return text;
    return text + " (" + std::to_string(bytes / map.item()) + " " + TYPES[int(map.type)].name + ")";
}

// What the map was made of, innermost dimension first, as the arguments are given.
std::string given_words(const TensorMap& map) {
    const auto list = [&](int first, auto number) {
        std::string text = "{";
        for (int i = first; i < map.rank; ++i) text += (i > first ? ", " : "") + std::to_string(number(i));
        return text + "}";
    };
    std::string text = std::string("; given: ") + TYPES[int(map.type)].name + ", sizes " +
                       list(0, [&](int i) { return map.dims[i]; }) + ", ";
    if (map.rank > 1) text += "strides " + list(1, [&](int i) { return map.strides[i - 1]; }) + " bytes, ";
    text += "box " + list(0, [&](int i) { return u32(map.box[i]); }) + " with rows of " +
            in_bytes(map, map.inner_bytes()) + ", ";
    return text + (map.swizzle ? std::to_string(ALIGNMENT << map.swizzle) + "-byte swizzle" : "no swizzle");
}

std::string refusal_of_pixels(const TensorMap& map) {
    switch (map.refusal) {
        case BAD_PIXEL_RANK:
            return "im2col takes a tensor of 3 to 5 dimensions";
        case BAD_PIXELS:
            return "the column has " + std::to_string(map.box[1]) + " pixels, and may have 1 to 1024";
        case BAD_CHANNELS:
            return "the box has " + std::to_string(map.box[0]) + " channels of each pixel, and may have 1 to 256";
        case BAD_CORNER: {
            const int most = MOST_CORNER[map.rank - int(LEAST_PIXEL_RANK)];
            return "a corner of the bounding box is not between " + std::to_string(-most - 1) + " and " +
                   std::to_string(most) + ", as in a tensor of " + std::to_string(map.rank) + " dimensions";
        }
        case EMPTY_PIXEL_BOX:
            return "the bounding box has no pixel";
        default:
            return "";
    }
}

std::string refusal_words(const TensorMap& map) {
    const auto any = [&](auto bad) {
        for (int i = 0; i < map.rank; ++i)
            if (bad(i)) return i;
        return 0;
    };
    const std::string span = std::to_string(ALIGNMENT << map.swizzle);
    switch (map.refusal) {
        case BAD_TYPE:
            return "the simulated card has no such type of elements";
        case BAD_RANK:
            return "a tensor has 1 to 5 dimensions";
        case BAD_BASE:
            return "the tensor begins " + std::to_string(map.base % ALIGNMENT) + " bytes past a multiple of 16";
        case BAD_DIM: {
            const int i = any([&](int d) { return !map.dims[d] || map.dims[d] > MOST_ELEMENTS; });
            return "dimension " + std::to_string(i) + " has " + std::to_string(map.dims[i]) +
                   " elements, and may have 1 to 2^32";
        }
        case BAD_STRIDE: {
            const int i = any(
                [&](int d) { return d > 0 && (map.strides[d - 1] % ALIGNMENT || map.strides[d - 1] >= MOST_STRIDE); });
            return "the stride of dimension " + std::to_string(i) + " is " + in_bytes(map, map.strides[i - 1]) +
                   ", and must be a multiple of " + in_bytes(map, ALIGNMENT) + " below 2^40";
        }
        case BAD_BOX: {
            const int i = any([&](int d) { return !map.box[d] || map.box[d] > MOST_BOX; });
            return "the box has " + std::to_string(map.box[i]) + " elements along dimension " + std::to_string(i) +
                   ", and may have 1 to 256";
        }
        case BAD_INNER:
            return "a row of the box has " + in_bytes(map, map.inner_bytes()) + ", not a multiple of " +
                   in_bytes(map, ALIGNMENT);
        case BAD_ELEMENT_STRIDE: {
            // That of dimension 0 is no longer known.
            const int i =
                any([&](int d) { return !map.element_strides[d] || map.element_strides[d] > MOST_ELEMENT_STRIDE; });
            return "the element stride of dimension " + std::to_string(i) +
                   (i ? " is " + std::to_string(map.element_strides[i]) + ", and may be 1 to 8"
                      : " is not between 1 and 8");
        }
        case WIDE_FOR_SWIZZLE:
            return "a row of the box has " + in_bytes(map, map.inner_bytes()) + ", and the " + span +
                   "-byte swizzle takes at most " + in_bytes(map, ALIGNMENT << map.swizzle);
        case BAD_SWIZZLE:
            return "the simulator has swizzles of 32, 64 and 128 bytes alone";
        case BAD_FILL:
            return "integers cannot be filled with NaN";
        case INTERLEAVED:
            return "interleaved layouts are not supported by the simulator";
        default:
            return refusal_of_pixels(map);
    }
}

}  // namespace

std::string refusal_of(const TensorMap& map) {
    const u8 why = map.refusal;
    const bool of_given = (why >= BAD_BASE && why <= BAD_INNER) || why == WIDE_FOR_SWIZZLE;
    return refusal_words(map) + (of_given && !map.im2col ? given_words(map) : "");
}

namespace {

// Where the n-th pixel after `start` lies along a dimension of the bounding box, [first, last], and how many lines have
// ended before it.
struct Walk {
    s64 at;
    u64 lines;
};
Walk walk(s64 start, s64 first, s64 last, s64 step, u64 n) {
    const u64 rest = start > last ? 1 : u64((last - start) / step) + 1, whole = u64((last - first) / step) + 1;
    if (n < rest) return {start + s64(n) * step, 0};
    n -= rest;
    return {first + s64(n % whole) * step, 1 + n / whole};
}

// Coordinates of a row of a box.
void place_row(const TensorMap& map, const BoxStart& start, u64 row, s64* at) {
    at[0] = start.at[0];
    for (int i = 1; i < map.rank; ++i) {
        if (!map.im2col) {
            at[i] = s64(start.at[i]) + s64(row % map.steps(i)) * map.element_strides[i];
            row /= map.steps(i);
        } else if (i + 1 < map.rank) {
            const s64 last = s64(map.dims[i]) - 1 + map.upper[i - 1];
            const Walk found = walk(start.at[i], map.lower[i - 1], last, map.element_strides[i], row);
            at[i] = found.at + start.offset[i - 1];
            row = found.lines;
        } else {
            at[i] = s64(start.at[i]) + s64(row);
        }
    }
}

}  // namespace

BoxRow row_of(const TensorMap& map, const BoxStart& start, u32 row) {
    BoxRow found{map.base, 0, map.box[0]};
    s64 at[TENSOR_DIMENSIONS];
    place_row(map, start, row, at);
    bool outside = false;
    for (int i = 1; i < map.rank; ++i) {
        outside |= at[i] < 0 || at[i] >= s64(map.dims[i]);
        found.address += u64(at[i]) * map.strides[i - 1];
    }
    found.address += u64(at[0] * s64(map.item()));
    const s64 before = -at[0], inside = s64(map.dims[0]) - at[0];
    found.first = u32(std::clamp<s64>(before, 0, map.box[0]));
    found.end = u32(std::clamp<s64>(inside, found.first, map.box[0]));
    if (outside) found.first = found.end = 0;
    return found;
}

}  // namespace sim
