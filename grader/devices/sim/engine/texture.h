// texture: texture objects of linear memory, as cudaCreateTextureObject describes them
#pragma once
#include <string>
#include <vector>

#include "scalar.h"

namespace sim {

struct Texture {
    enum class Kind : u8 { is_signed, is_unsigned, floating };
    u64 base = 0;   // device address
    u64 count = 0;  // of texels
    u8 channels = 1;
    u8 channel_bytes = 4;
    Kind kind = Kind::floating;
    bool normalized = false;  // integers are read as fractions of the largest
    bool alive = true;

    u32 texel_bytes() const { return u32(channels) * channel_bytes; }
    // One channel as the bits of the 32-bit register that it is read into.
    u32 value(const u8* channel) const;
};

class Textures {
 public:
    u64 add(Texture texture);  // the object's handle
    Texture* find(u64 handle);
    const Texture* find(u64 handle) const { return const_cast<Textures*>(this)->find(handle); }

 private:
    std::vector<Texture> textures_;
};

}  // namespace sim
