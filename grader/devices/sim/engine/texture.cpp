// texture: tex1Dfetch, and the texture objects that it reads
//
// PTX ISA 9.7.9.3 (tex), CUDA C++ Programming Guide "Texture Object API": what lies outside reads as 0, and so do the
// channels that a texel lacks. The fourth of a float texel is then 1; that of an integer is 0, as measured on an H200.
#include "texture.h"

#include <limits>

#include "block.h"
#include "check_access.h"
#include "decode.h"
#include "device.h"
#include "operation.h"
#include "runtime.h"

namespace sim {

namespace {

constexpr u64 FIRST_HANDLE = 0x1000;
constexpr int CHANNELS = 4;

template <class Signed, class Unsigned>
u32 integer_value(const Texture& texture, const u8* from) {
    const bool is_signed = texture.kind == Texture::Kind::is_signed;
    Unsigned bits;
    std::memcpy(&bits, from, sizeof bits);
    if (!texture.normalized) return is_signed ? u32(s32(Signed(bits))) : u32(bits);
    const f32 most = is_signed ? f32(std::numeric_limits<Signed>::max()) : f32(std::numeric_limits<Unsigned>::max());
    const f32 value = is_signed ? f32(Signed(bits)) / most : f32(bits) / most;
    return bit_cast<u32>(value < -1.0f ? -1.0f : value);
}

[[noreturn]] void stop(Warp& warp, int lane, FindingKind kind, const std::string& message) {
    warp.block->stop_at(warp.block->at(warp, warp.here, lane, kind, message));
}

// operands: four channels, texture object, index
void fetch(Warp& warp, const Instruction& in, Mask mask) {
    const u64* handle = warp.row<const u64>(in.operand[CHANNELS]);
    const s32* index = warp.row<const s32>(in.operand[CHANNELS + 1]);
    u32 texel[LANES][CHANNELS] = {};
    each_lane(mask, [&](int l) {
        const Texture* texture = Device::get().textures.find(handle[l]);
        if (!texture) stop(warp, l, FindingKind::crash, "fetches from what is not a texture object");
        if (texture->channels < CHANNELS && !in.option) texel[l][CHANNELS - 1] = bit_cast<u32>(1.0f);
        if (index[l] < 0 || u64(index[l]) >= texture->count) return;
        u64 a[LANES];
        u8* at[LANES];
        a[l] = texture->base + u64(index[l]) * texture->texel_bytes();
        check_global_at(warp, in, a, Mask(1) << l, texture->texel_bytes(), Access::read, at);
        for (int i = 0; i < texture->channels; ++i) texel[l][i] = texture->value(at[l] + i * texture->channel_bytes);
    });
    for (int i = 0; i < CHANNELS; ++i) {
        u32* d = warp.row<u32>(in.operand[i]);
        each_lane(mask, [&](int l) { d[l] = texel[l][i]; });
    }
}

// tex.1d.v4.f32.s32 {d, d, d, d}, [object, {index}]
void lower_fetch(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    const ptx::Operand &texels = in.operands[0], &place = in.operands[1];
    const bool shaped = texels.elements.size() == CHANNELS && place.elements.size() == 2;
    if (!shaped || place.elements[0].kind != ptx::OperandKind::reg)
        d.unsupported("the operands of " + std::string(in.opcode));
    d.note_narrow_access();
    Instruction out = d.prototype(in, entry);
    const ptx::Operand& index = place.elements[1];
    out.operand[CHANNELS] = d.source(place.elements[0], shape_of<u64>());
    out.operand[CHANNELS + 1] = d.source(index.elements.empty() ? index : index.elements[0], shape_of<s32>());
    for (size_t i = 0; i < CHANNELS; ++i) out.operand[i] = d.destination(texels.elements[i], shape_of<u32>());
    d.emit(out);
}

}  // namespace

u32 Texture::value(const u8* channel) const {
    if (channel_bytes == 4) {
        u32 bits;
        std::memcpy(&bits, channel, sizeof bits);
        return bits;
    }
    if (kind == Kind::floating) {
        f16 half;
        std::memcpy(&half, channel, sizeof half);
        return bit_cast<u32>(widen(half));
    }
    return channel_bytes == 2 ? integer_value<s16, u16>(*this, channel) : integer_value<s8, u8>(*this, channel);
}

u64 Textures::add(Texture texture) {
    textures_.push_back(texture);
    return FIRST_HANDLE + textures_.size() - 1;
}

Texture* Textures::find(u64 handle) {
    const u64 at = handle - FIRST_HANDLE;
    return at < textures_.size() && textures_[at].alive ? &textures_[at] : nullptr;
}

void texture_entries(Table& t) {
    const Shape f = shape_of<f32>(), u = shape_of<u32>();
    t.add("tex.1d.v4.f32.s32", {fetch, {4, {f, f, f, f}}}, lower_fetch, Flow::next, 0);
    t.add("tex.1d.v4.{u32,s32}.s32", {fetch, {4, {u, u, u, u}}}, lower_fetch, Flow::next, 1);
}

}  // namespace sim

// ---- the runtime

using namespace sim;

namespace {

struct ChannelDescription {  // cudaChannelFormatDesc
    int bits[4];             // of each channel
    int kind;                // cudaChannelFormatKind
};

struct ResourceDescription {  // cudaResourceDesc, of linear memory
    static constexpr int LINEAR = 2;
    int type, pad;
    u64 address;
    ChannelDescription channels;
    u64 bytes;
};

struct TextureDescription {  // the first fields of cudaTextureDesc
    int address_mode[3], filter_mode, read_mode;
};

constexpr int MOST_KINDS = 3;  // of channels: signed, unsigned, floating

}  // namespace

SIM_EXPORT ChannelDescription cudaCreateChannelDesc(int x, int y, int z, int w, int kind) {
    return {{x, y, z, w}, kind};
}
SIM_EXPORT int cudaCreateTextureObject(
    u64* handle, const ResourceDescription* resource, const TextureDescription* how, const void*) {
    Device& device = Device::get();
    *handle = 0;
    if (resource->type != ResourceDescription::LINEAR)
        return device.unsupported(
            "cudaCreateTextureObject: textures of arrays and of pitched memory are not supported by the simulator, "
            "only "
            "those of linear memory");
    Texture made;
    made.channels = 0;
    for (int bits : resource->channels.bits) made.channels += bits != 0;
    made.channel_bytes = u8(resource->channels.bits[0] / 8);
    const bool sized = made.channel_bytes == 1 || made.channel_bytes == 2 || made.channel_bytes == 4;
    if (!sized || made.channels == 3 || resource->channels.kind < 0 || resource->channels.kind >= MOST_KINDS)
        return device.fail(INVALID_VALUE);
    if (!device.range("cudaCreateTextureObject", reinterpret_cast<void*>(resource->address), resource->bytes, "reads"))
        return device.fail(INVALID_VALUE);
    made.base = resource->address;
    made.kind = Texture::Kind(resource->channels.kind);
    made.normalized = how && how->read_mode == 1;  // cudaReadModeNormalizedFloat
    made.count = resource->bytes / made.texel_bytes();
    *handle = device.textures.add(made);
    return SUCCESS;
}
SIM_EXPORT int cudaDestroyTextureObject(u64 handle) {
    if (Texture* texture = Device::get().textures.find(handle)) texture->alive = false;
    return SUCCESS;
}
