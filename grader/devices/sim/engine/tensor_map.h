// tensor_map: the 128 bytes that describe a tensor in global memory, and the boxes that a copy takes out of it
//
// The driver encodes a map on the host, kernels get it by value. What a real map holds is a secret of the driver; this
// one holds the arguments, and why they were refused. cuda.h of CUDA 13.0 has the rules; PTX ISA 5.5, "Tensors", what
// a box is. In the im2col mode a box is a column of pixels. It goes along the lines of a bounding box in W, H and D,
// and on into the next image. Each of its rows has some channels of one pixel.
#pragma once
#include <string>

#include "scalar.h"

namespace sim {

constexpr int TENSOR_DIMENSIONS = 5, PIXEL_DIMENSIONS = 3;

// CUtensorMapDataType, as far as this card has them.
enum class TensorType : u8 { u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32_flushed, tf32, tf32_flushed };
constexpr int TENSOR_TYPES = int(TensorType::tf32_flushed) + 1;
u32 bytes_of(TensorType type);

// What the host asks for, as cuTensorMapEncodeTiled takes it, or cuTensorMapEncodeIm2col: then the box is that of one
// column of pixels, {channels, pixels}, and there are corners.
struct TensorArguments {
    u32 type, rank;
    u64 base;
    const u64 *dims, *strides;
    const u32 *box, *element_strides;
    u32 interleave, swizzle, promotion, fill;
    const int *lower = nullptr, *upper = nullptr;  // W, H, D; null: tiled
};

struct TensorMap {
    static constexpr u64 MAGIC = 0x7061'6d72'6f73'6e65;

    u64 magic;
    u64 base;
    u64 dims[TENSOR_DIMENSIONS];         // in elements, innermost first
    u64 strides[TENSOR_DIMENSIONS - 1];  // in bytes, of all dimensions but the first
    u16 box[TENSOR_DIMENSIONS];          // in elements of the tensor
    u8 element_strides[TENSOR_DIMENSIONS];
    TensorType type;
    u8 rank;
    u8 swizzle;                                            // CUtensorMapSwizzle
    u8 fills_nan;                                          // what lies outside of the tensor is NaN; else it is zero
    u8 im2col;                                             // the box is a column of pixels
    u8 changed;                                            // by a kernel: a block must acquire it before copies take it
    s16 lower[PIXEL_DIMENSIONS], upper[PIXEL_DIMENSIONS];  // corners of the bounding box, from those of the tensor
    u8 refusal;                                            // 0, or why the arguments were refused: refusal_of(map)

    u32 item() const { return bytes_of(type); }
    u32 inner_bytes() const { return box[0] * item(); }  // of a row of the box
    u32 steps(int dimension) const {                     // rows of the box along a dimension
        return (box[dimension] + element_strides[dimension] - 1u) / element_strides[dimension];
    }
    u32 rows() const;
    u32 box_bytes() const { return rows() * inner_bytes(); }
    std::string shape() const;  // "64 x 32 f16"
};
static_assert(sizeof(TensorMap) <= 128, "a CUtensorMap");

// The map of these arguments. One that is refused says why when it is used.
TensorMap encode(const TensorArguments& arguments);

// What a kernel may change in a map that is not for im2col, in the words of the PTX ISA.
enum class MapField : u8 {
    global_address,
    rank,
    box_dim,
    global_dim,
    global_stride,
    element_stride,
    elemtype,
    interleave_layout,
    swizzle_mode,
    fill_mode
};
// The types of elements by their numbers in PTX, which are not those of CUDA.
constexpr TensorType PTX_TYPES[TENSOR_TYPES] = {
    TensorType::u8,   TensorType::u16,  TensorType::u32,         TensorType::s32,         TensorType::u64,
    TensorType::s64,  TensorType::f16,  TensorType::f32,         TensorType::f32_flushed, TensorType::f64,
    TensorType::bf16, TensorType::tf32, TensorType::tf32_flushed};
// `place` is a dimension, of a stride the one before. Also a map of zeros becomes one.
void change(TensorMap& map, MapField field, u32 place, u64 value);
std::string refusal_of(const TensorMap& map);

// Where a row of a box lies.
struct BoxStart {
    s32 at[TENSOR_DIMENSIONS] = {};
    u16 offset[PIXEL_DIMENSIONS] = {};  // im2col: from the pixels of the bounding box to those that are copied
};
struct BoxRow {
    u64 address;     // of its first element, if that were in the tensor
    u32 first, end;  // elements of the row that are in the tensor
};
BoxRow row_of(const TensorMap& map, const BoxStart& start, u32 row);

}  // namespace sim
