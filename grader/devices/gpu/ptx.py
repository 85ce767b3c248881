"""The kernels that the grader itself needs, as PTX for any driver since CUDA 11: wait, replace, negate, compare, count,
digest, read."""

from __future__ import annotations

_HEAD = """
.version 7.0
.target sm_80
.address_size 64
"""

SPIN = f"""{_HEAD}
.visible .entry spin(.param .u64 cycles) {{
.reg .pred %go;
.reg .b64 %start, %now, %cycles;
ld.param.u64 %cycles, [cycles];
mov.u64 %start, %clock64;
AGAIN:
mov.u64 %now, %clock64;
sub.u64 %now, %now, %start;
setp.lt.u64 %go, %now, %cycles;
@%go bra AGAIN;
ret;
}}
"""
"""spin(u64 cycles): keeps the GPU busy for that many cycles of an SM, so that the host gets ahead of it."""

_STRIDE = """mov.u32 %me, %tid.x;
mov.u32 %width, %ntid.x;
mov.u32 %block, %ctaid.x;
mov.u32 %blocks, %nctaid.x;
mul.wide.u32 %step, %width, %blocks;
mad.lo.u32 %me, %block, %width, %me;
cvt.u64.u32 %i, %me;
"""  # %i: the thread's number in the grid; %step: how many threads there are

DIFFER = f"""{_HEAD}
.visible .entry differ(.param .u64 one, .param .u64 other, .param .u64 words, .param .u64 found) {{
.reg .pred %go, %not;
.reg .b32 %a, %b, %me, %width, %block, %blocks;
.reg .b64 %i, %step, %p, %q, %words, %found, %at;
ld.param.u64 %p, [one];
ld.param.u64 %q, [other];
ld.param.u64 %words, [words];
ld.param.u64 %found, [found];
{_STRIDE}AGAIN:
setp.ge.u64 %go, %i, %words;
@%go ret;
shl.b64 %at, %i, 2;
add.u64 %at, %at, %p;
ld.global.u32 %a, [%at];
sub.u64 %at, %at, %p;
add.u64 %at, %at, %q;
ld.global.u32 %b, [%at];
setp.ne.u32 %not, %a, %b;
@%not st.global.u32 [%found], 1;
add.u64 %i, %i, %step;
bra AGAIN;
}}
"""
"""differ(one, other, u64 words, u32* found): stores 1 in ``found`` where any of the 4-byte words are not the same."""

UNWRITTEN = f"""{_HEAD}
.visible .entry unwritten(
.param .u64 place, .param .u64 units, .param .u64 unit, .param .u64 poison, .param .u64 count) {{
.reg .pred %go;
.reg .b16 %byte, %poison;
.reg .b32 %me, %width, %block, %blocks;
.reg .b64 %place, %units, %unit, %count, %i, %step, %p, %end, %found, %wide;
ld.param.u64 %place, [place];
ld.param.u64 %units, [units];
ld.param.u64 %unit, [unit];
ld.param.u64 %wide, [poison];
ld.param.u64 %count, [count];
cvt.u16.u64 %poison, %wide;
{_STRIDE}mov.u64 %found, 0;
UNITS:
setp.ge.u64 %go, %i, %units;
@%go bra DONE;
mad.lo.u64 %p, %i, %unit, %place;
add.u64 %end, %p, %unit;
add.u64 %i, %i, %step;
BYTES:
ld.global.u8 %byte, [%p];
setp.ne.u16 %go, %byte, %poison;
@%go bra UNITS;
add.u64 %p, %p, 1;
setp.lt.u64 %go, %p, %end;
@%go bra BYTES;
add.u64 %found, %found, 1;
bra UNITS;
DONE:
setp.eq.u64 %go, %found, 0;
@%go ret;
red.global.add.u64 [%count], %found;
ret;
}}
"""
"""unwritten(place, u64 units, u64 unit, u64 poison, u64* count): adds to ``count`` how many units have only poison.

A unit is ``unit`` bytes, and ``poison`` a byte.
"""

_MIXED = """mad.lo.u64 %word, %nth, 0x9E3779B97F4A7C15, %number;
shr.u64 %shifted, %word, 30;
xor.b64 %word, %word, %shifted;
mul.lo.u64 %word, %word, 0xBF58476D1CE4E5B9;
shr.u64 %shifted, %word, 27;
xor.b64 %word, %word, %shifted;
mul.lo.u64 %word, %word, 0x94D049BB133111EB;
shr.u64 %shifted, %word, 31;
xor.b64 %word, %word, %shifted;
"""  # contents.mixed, where %nth counts from 1

DIGEST = f"""{_HEAD}
.visible .entry digest(.param .u64 place, .param .u64 words, .param .u64 key, .param .u64 sum) {{
.reg .pred %go;
.reg .b32 %me, %width, %block, %blocks, %given;
.reg .b64 %place, %words, %key, %total, %sum, %i, %step, %at, %number, %nth, %word, %shifted;
ld.param.u64 %place, [place];
ld.param.u64 %words, [words];
ld.param.u64 %key, [key];
ld.param.u64 %sum, [sum];
{_STRIDE}mov.u64 %total, 0;
AGAIN:
setp.ge.u64 %go, %i, %words;
@%go bra DONE;
mad.lo.u64 %at, %i, 4, %place;
ld.global.u32 %given, [%at];
cvt.u64.u32 %number, %given;
xor.b64 %number, %number, %key;
add.u64 %nth, %i, 1;
{_MIXED}add.u64 %total, %total, %word;
add.u64 %i, %i, %step;
bra AGAIN;
DONE:
red.global.add.u64 [%sum], %total;
ret;
}}
"""
"""digest(place, u64 words, u64 key, u64* sum): adds contents.mixed(key ^ w, i) to ``sum`` for the ith 4-byte word w."""

REPLACE = f"""{_HEAD}
.visible .entry replace(
.param .u64 place, .param .u64 master, .param .u64 elements, .param .u64 itemsize, .param .u64 count,
.param .u64 number) {{
.reg .pred %go;
.reg .b16 %byte;
.reg .b32 %me;
.reg .b64 %place, %master, %elements, %itemsize, %count, %number, %i, %nth, %part, %word, %shifted, %to, %from, %end;
mov.u32 %me, %tid.x;
cvt.u64.u32 %i, %me;
ld.param.u64 %count, [count];
setp.ge.u64 %go, %i, %count;
@%go ret;
ld.param.u64 %place, [place];
ld.param.u64 %master, [master];
ld.param.u64 %elements, [elements];
ld.param.u64 %itemsize, [itemsize];
ld.param.u64 %number, [number];
div.u64 %part, %elements, %count;
shl.b64 %nth, %i, 1;
add.u64 %nth, %nth, 2;
{_MIXED}rem.u64 %word, %word, %part;
mad.lo.u64 %to, %i, %part, %word;
mad.lo.u64 %to, %to, %itemsize, %place;
add.u64 %nth, %nth, 1;
{_MIXED}rem.u64 %from, %word, %elements;
mad.lo.u64 %from, %from, %itemsize, %master;
add.u64 %end, %from, %itemsize;
AGAIN:
ld.global.u8 %byte, [%from];
st.global.u8 [%to], %byte;
add.u64 %from, %from, 1;
add.u64 %to, %to, 1;
setp.lt.u64 %go, %from, %end;
@%go bra AGAIN;
ret;
}}
"""
"""replace(place, master, u64 elements, u64 itemsize, u64 count, u64 number): writes what contents.replaced says.

One block, a thread for each of the ``count`` values. ``place`` has the rotated input, ``master`` the one before.
"""

NEGATE = f"""{_HEAD}
.visible .entry negate(.param .u64 from, .param .u64 to, .param .u64 itemsize) {{
.reg .pred %go;
.reg .b16 %byte;
.reg .b32 %me, %width, %block, %blocks;
.reg .b64 %p, %to, %itemsize, %step;
ld.param.u64 %p, [from];
ld.param.u64 %to, [to];
ld.param.u64 %itemsize, [itemsize];
mov.u32 %me, %tid.x;
mov.u32 %width, %ntid.x;
mov.u32 %block, %ctaid.x;
mov.u32 %blocks, %nctaid.x;
mul.wide.u32 %step, %width, %blocks;
mul.lo.u64 %step, %step, %itemsize;
mad.lo.u32 %me, %block, %width, %me;
cvt.u64.u32 %to, %me;
mad.lo.u64 %p, %to, %itemsize, %p;
add.u64 %p, %p, %itemsize;
sub.u64 %p, %p, 1;
ld.param.u64 %to, [to];
AGAIN:
setp.ge.u64 %go, %p, %to;
@%go ret;
ld.global.u8 %byte, [%p];
xor.b16 %byte, %byte, 0x80;
st.global.u8 [%p], %byte;
add.u64 %p, %p, %step;
bra AGAIN;
}}
"""
"""negate(from, to, u64 itemsize): gives the numbers from one address up to another the other sign, the highest bit."""

UNROLL = 8  # loads of 16 bytes in flight for each thread of the reading kernel

_READ_HEAD = f"""{_HEAD}
.visible .entry read_all(.param .u64 from, .param .u64 to, .param .u64 out) {{
.reg .pred %go, %in<{UNROLL}>;
.reg .b32 %a<{UNROLL}>, %b<{UNROLL}>, %c<{UNROLL}>, %d<{UNROLL}>, %me, %width, %block, %blocks, %sum;
.reg .b64 %p, %step, %to, %out;
ld.param.u64 %p, [from];
ld.param.u64 %to, [to];
ld.param.u64 %out, [out];
mov.u32 %me, %tid.x;
mov.u32 %width, %ntid.x;
mov.u32 %block, %ctaid.x;
mov.u32 %blocks, %nctaid.x;
mul.wide.u32 %step, %width, %blocks;
shl.b64 %step, %step, 4;
mad.lo.u32 %me, %block, %width, %me;
mad.wide.u32 %p, %me, 16, %p;
mov.u32 %sum, 0;
AGAIN:"""

_LOAD = (
    "setp.lt.u64 %in{i}, %p, %to;",
    "@%in{i} ld.global.nc.v4.u32 {{%a{i}, %b{i}, %c{i}, %d{i}}}, [%p];",
    "add.u64 %p, %p, %step;",
)

_READ_TAIL = """setp.lt.u64 %go, %p, %to;
@%go bra AGAIN;
setp.eq.u32 %go, %sum, 0x9e3779b9;
@%go st.global.u32 [%out], %sum;
ret;
}
"""


def read_ptx() -> str:
    """read_all(from, to, u32* out): reads the bytes from ``from`` up to ``to``, 16 a thread, neighbours side by side.

    It stores the exclusive or of what it read only where that is one value in 2^32, so that no load can be left out.
    """
    places = range(UNROLL)
    loads = [line.format(i=i) for i in places for line in _LOAD]
    sums = [f"@%in{i} xor.b32 %sum, %sum, %{name}{i};" for i in places for name in "abcd"]
    return "\n".join([_READ_HEAD, *loads, *sums, _READ_TAIL])
