"""Trials of single TODOs: the rank of a float, the k-th's bin of a histogram, the words of Philox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grader.content.spec import InputKind, Tensor
from grader.content.trial import Trial

if TYPE_CHECKING:
    from numpy import ndarray

    from grader.content.spec import Rng, Sizes

# -- the rank of a float ---------------------------------------------------------------------------------------------

# From the lowest to the highest. Two on one line must have equal ranks.
FLOATS = (
    ("-inf",),
    ("-3.4e38",),
    ("-2",),
    ("-1",),
    ("-1e-45",),
    ("-0", "0"),
    ("1e-45",),
    ("1",),
    ("2",),
    ("3.4e38",),
    ("inf",),
    ("nan", "-nan"),
)
NAMES = tuple(name for line in FLOATS for name in line)

RANK_CODE = """
__global__ void trial_kernel(int64_t* ranks) {
    const unsigned bits[14] = {0xff800000, 0xff7fc99e, 0xc0000000, 0xbf800000, 0x80000001, 0x80000000, 0x00000000,
                               0x00000001, 0x3f800000, 0x40000000, 0x7f7fc99e, 0x7f800000, 0x7fc00000, 0xffc00000};
    for (int i = 0; i < 14; ++i) ranks[i] = rank_of(__uint_as_float(bits[i]));
}

KATA_EXPORT void trial(int64_t* ranks, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(ranks);
}
"""


def ranked(arrays: Mapping[str, ndarray]) -> str:
    """ranks[i]: the rank of the float NAMES[i]."""
    ranks = dict(zip(NAMES, (int(rank) for rank in arrays["ranks"]), strict=True))
    before = None
    for line in FLOATS:
        for name in line:
            if ranks[name] == 0:
                return f"the rank of {name} is 0, which is smaller than every rank. It must be larger."
            if ranks[name] != ranks[line[0]]:
                return f"{line[0]} and {name} must have the same rank. They have {ranks[line[0]]} and {ranks[name]}."
        if before is not None and ranks[before] >= ranks[line[0]]:
            return (
                f"{before} is smaller than {line[0]}, and must have the smaller rank. The ranks are {ranks[before]} "
                f"and {ranks[line[0]]}."
            )
        before = line[-1]
    return ""


def rank_picture(arrays: Mapping[str, ndarray]) -> list[str]:
    lines = [f"{name:>8}  {int(rank):>10}  {int(rank):08x}" for name, rank in zip(NAMES, arrays["ranks"], strict=True)]
    return [f"{'float':>8}  {'rank':>10}  in base 16", *lines]


# -- the bin of the k-th ---------------------------------------------------------------------------------------------

# (bins that are not empty, and their counts; how many are wanted)
HISTOGRAMS: tuple[tuple[Mapping[int, int], int], ...] = (
    ({255: 5}, 1),
    ({255: 5}, 5),
    ({0: 3}, 2),
    ({200: 2, 100: 3, 50: 4}, 2),
    ({200: 2, 100: 3, 50: 4}, 3),
    ({200: 2, 100: 3, 50: 4}, 5),
    ({200: 2, 100: 3, 50: 4}, 6),
    ({200: 2, 100: 3, 50: 4}, 9),
    ({63: 1, 64: 1, 65: 1, 66: 1}, 3),
    ({bin: 1 for bin in range(256)}, 100),
    ({bin: bin for bin in range(256)}, 2048),
)

BIN_CODE = """
__global__ void trial_kernel(const int* histograms, const int* wanted, int* bins) {
    for (int i = 0; i < 11; ++i) {
        const Bin bin = find_bin(histograms + 256 * i, wanted[i]);
        bins[(i * 32 + threadIdx.x) * 2] = bin.digit;
        bins[(i * 32 + threadIdx.x) * 2 + 1] = bin.above;
    }
}

KATA_EXPORT void trial(const int* histograms, const int* wanted, int* bins, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(histograms, wanted, bins);
}
"""


def counted(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.array([[bins.get(digit, 0) for digit in range(256)] for bins, _ in HISTOGRAMS])


def wanted(rng: Rng, shape: tuple[int, ...], sizes: Sizes) -> ndarray:
    import numpy

    return numpy.array([number for _, number in HISTOGRAMS])


def right_bin(bins: Mapping[int, int], number: int) -> tuple[int, int]:
    """(digit, how many lie above it)."""
    above = 0
    for digit in sorted(bins, reverse=True):
        if above + bins[digit] >= number:
            return digit, above
        above += bins[digit]
    raise AssertionError(bins)


def in_words(bins: Mapping[int, int]) -> str:
    """The counts from the highest bin down, at most four of them."""
    full = [digit for digit in sorted(bins, reverse=True) if bins[digit]]
    words = ", ".join(f"{bins[digit]} in bin {digit}" for digit in full[:4])
    return words + (", ..." if len(full) > len(full[:4]) else "")


def found(arrays: Mapping[str, ndarray]) -> str:
    """bins[i, lane]: what each lane gets for HISTOGRAMS[i]."""
    for row, (bins, number) in enumerate(HISTOGRAMS):
        digit, above = right_bin(bins, number)
        for lane in range(32):
            got = tuple(int(value) for value in arrays["bins"][row, lane])
            if got != (digit, above):
                return (
                    f"the histogram has {in_words(bins)}. Number {number} from the top is in bin {digit}, and {above} "
                    f"lie above that bin. Lane {lane} gets bin {got[0]} and {got[1]} above."
                )
    return ""


def bin_picture(arrays: Mapping[str, ndarray]) -> list[str]:
    lines = [
        f"{in_words(bins):<60}{number:>7}{int(arrays['bins'][row, 0, 0]):>6}{int(arrays['bins'][row, 0, 1]):>7}"
        for row, (bins, number) in enumerate(HISTOGRAMS)
    ]
    return [f"{'histogram':<60}{'wanted':>7}{'bin':>6}{'above':>7}", *lines]


# -- Philox ----------------------------------------------------------------------------------------------------------

# (counter, key), four words and two; the answers follow from the ten rounds.
CALLS = (
    ((0, 0, 0, 0), (0, 0)),
    ((1, 0, 0, 0), (0, 0)),
    ((0, 1, 0, 0), (0, 0)),
    ((0, 0, 1, 0), (0, 0)),
    ((0, 0, 0, 1), (0, 0)),
    ((0, 0, 0, 0), (1, 0)),
    ((0, 0, 0, 0), (0, 1)),
    ((0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF)),
)

PHILOX_CODE = """
__global__ void trial_kernel(int64_t* words) {
    for (int i = 0; i < 8; ++i) {
        uint4 counter = {i == 1, i == 2, i == 3, i == 4};
        uint2 key = {i == 5, i == 6};
        if (i == 7) {
            counter = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
            key = {0xffffffff, 0xffffffff};
        }
        const uint4 drawn = philox(counter, key);
        words[4 * i] = drawn.x;
        words[4 * i + 1] = drawn.y;
        words[4 * i + 2] = drawn.z;
        words[4 * i + 3] = drawn.w;
    }
}

KATA_EXPORT void trial(int64_t* words, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(words);
}
"""


def philox(counter: tuple[int, ...], key: tuple[int, int], rounds: int = 10) -> tuple[int, ...]:
    x, y, z, w = counter
    k, m = key
    for _ in range(rounds):
        left, right = x * 0xD2511F53, z * 0xCD9E8D57
        x, y, z, w = (right >> 32) ^ y ^ k, right % 2**32, (left >> 32) ^ w ^ m, left % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return x, y, z, w


def in_base_16(words: tuple[int, ...]) -> str:
    return " ".join(f"{word % 2**64:08x}" for word in words)


def hashed(arrays: Mapping[str, ndarray]) -> str:
    """words[i]: the four words of CALLS[i]."""
    for row, (counter, key) in enumerate(CALLS):
        got = tuple(int(word) for word in arrays["words"][row])
        right = philox(counter, key)
        if got == right:
            continue
        rounds = [count for count in range(1, 16) if philox(counter, key, count) == got]
        said = f" These are the words after {rounds[0]} rounds." if rounds else ""
        return (
            f"counter {in_base_16(counter)} and key {in_base_16(key)} give the words {in_base_16(right)}. The code "
            f"gives {in_base_16(got)}.{said}"
        )
    return ""


def philox_picture(arrays: Mapping[str, ndarray]) -> list[str]:
    lines = [
        f"{in_base_16(counter)}  {in_base_16(key)}  {in_base_16(tuple(int(word) for word in arrays['words'][row]))}"
        for row, (counter, key) in enumerate(CALLS)
    ]
    return [f"{'counter':<35}  {'key':<17}  words", *lines]


TRIES = (
    Trial(
        katas=("argmax_row_f32",),
        todos=(1,),
        about="the rank of a float: integers that are ordered as the floats are",
        code=RANK_CODE,
        outputs=(Tensor("ranks", (len(NAMES),), "i64"),),
        judge=ranked,
        picture=rank_picture,
    ),
    Trial(
        katas=("topk_radix_select_f32",),
        todos=(1,),
        about="the bin of a histogram that has a given place from the top, and how many lie above",
        code=BIN_CODE,
        inputs=(
            Tensor("histograms", (len(HISTOGRAMS), 256), "i32"),
            Tensor("wanted", (len(HISTOGRAMS),), "i32"),
        ),
        values=InputKind("histograms", {"histograms": counted, "wanted": wanted}),
        outputs=(Tensor("bins", (len(HISTOGRAMS), 32, 2), "i32"),),
        judge=found,
        picture=bin_picture,
    ),
    Trial(
        katas=("sample_gumbel_f32",),
        todos=(1,),
        about="the words of Philox4x32-10 for eight counters and keys",
        code=PHILOX_CODE,
        outputs=(Tensor("words", (len(CALLS), 4), "i64"),),
        judge=hashed,
        picture=philox_picture,
    ),
)
