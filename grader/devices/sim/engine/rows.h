// rows: copies and fills of rows of bytes, of which a plain one has a single row
#pragma once
#include "scalar.h"

namespace sim {

template <class Pointer>
struct Rows {
    Pointer first;
    u64 pitch;  // bytes from one row to the next
};

// The host waits for a copy from or to its own memory, unless it asks for one that is asynchronous.
int copy_rows(
    const char* what, Rows<void*> to, Rows<const void*> from, u64 width, u64 height, void* stream, bool waits);
int fill_rows(const char* what, Rows<void*> to, int value, u64 width, u64 height, void* stream);

}  // namespace sim
