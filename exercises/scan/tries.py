"""Trials of single TODOs: the scan of a warp, the places of a padded tree, look-back over given states, joined runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from grader.content.spec import Tensor
from grader.content.trial import Trial, cells

if TYPE_CHECKING:
    from numpy import ndarray

LANES = 32

# -- the scan of a warp ----------------------------------------------------------------------------------------------

SCAN_CODE = """
__global__ void trial_kernel(int* sums) {
    const int lane = threadIdx.x;
    for (int from = 0; from < 32; ++from) sums[from * 32 + lane] = warp_scan(lane == from ? 1 : 0);
}

KATA_EXPORT void trial(int* sums, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(sums);
}
"""


def scanned(arrays: Mapping[str, ndarray]) -> str:
    """Row r of sums: what each lane gets if only lane r has a 1."""
    for start in range(LANES):
        for lane in range(LANES):
            got, right = int(arrays["sums"][start, lane]), int(start <= lane)
            if got != right:
                return (
                    f"lane {lane} gets the sum over lanes 0 to {lane}: the value of lane {start} must be in it "
                    f"{right} times. It is in it {got} times."
                )
    return ""


def scan_picture(arrays: Mapping[str, ndarray]) -> list[str]:
    return ["the lanes (columns 0 to 31) that get the value of each lane (#: once):", *cells(arrays["sums"], "lane")]


# -- the places of the padded tree -----------------------------------------------------------------------------------

PLACES, BANKS = 1024, 32
# Lanes of an access that may share a bank. A warp's places in the tree down begin d further to the right. They lie in
# three groups of 32 words, and no padding that serves all strides makes the first group and the third fit each other.
MOST = {"up": 1, "down": 2}

PADDED_CODE = """
__global__ void trial_kernel(int* places) {
    for (int i = threadIdx.x; i < 1024; i += 32) places[i] = padded(i);
}

KATA_EXPORT void trial(int* places, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(places);
}
"""


def steps() -> Iterator[tuple[str, int, list[int]]]:
    """Each access of a warp in a step: (the tree, d, the elements of its lanes)."""
    for tree in ("up", "down"):
        offset = 1
        while offset < PLACES:
            for first in range(0, PLACES // 2, LANES):
                own = [place_of(tree, offset, tid) for tid in range(first, first + LANES)]
                own = [i for i in own if i < PLACES]
                if own:
                    yield tree, offset, own
                    yield tree, offset, [i - offset for i in own]
            offset *= 2


def place_of(tree: str, offset: int, tid: int) -> int:
    """The place that a thread adds to in a step."""
    return 2 * offset * (tid + 1) - 1 + (offset if tree == "down" else 0)


def fullest_bank(places: ndarray, elements: list[int]) -> list[int]:
    """Those of the elements that are in one bank, of the bank that has most of them."""
    banks: dict[int, list[int]] = {}
    for i in elements:
        banks.setdefault(int(places[i]) % BANKS, []).append(i)
    return max(banks.values(), key=len)


def without_conflict(arrays: Mapping[str, ndarray]) -> str:
    """places[i]: where element i of the row is in shared memory."""
    places = arrays["places"]
    room = PLACES + PLACES // BANKS
    taken: dict[int, int] = {}
    for i, place in enumerate(places.tolist()):
        if not 0 <= place < room:
            return f"element {i} is at word {place}, and the array has {room} words."
        if place in taken:
            return f"elements {taken[place]} and {i} are both at word {place}."
        taken[place] = i
    for tree, offset, elements in steps():
        shared = fullest_bank(places, elements)
        if len(shared) > MOST[tree]:
            return (
                f"in step {offset} of the tree {tree}, a warp accesses elements {shared[0]} and {shared[1]}, at words "
                f"{int(places[shared[0]])} and {int(places[shared[1]])}. Both are in bank "
                f"{int(places[shared[0]]) % BANKS}, and {len(shared)} lanes share it."
            )
    return ""


def padded_picture(arrays: Mapping[str, ndarray]) -> list[str]:
    """Wavefronts of the worst access of each step: 1 is free of conflicts."""
    worst: dict[tuple[str, int], int] = {}
    for tree, offset, elements in steps():
        count = len(fullest_bank(arrays["places"], elements))
        worst[tree, offset] = max(worst.get((tree, offset), 1), count)
    head = "step d       " + "".join(f"{offset:>5}" for tree, offset in worst if tree == "up")
    lines = [
        f"tree {tree:<8}" + "".join(f"{count:>5}" for (other, _), count in worst.items() if other == tree)
        for tree in ("up", "down")
    ]
    return ["wavefronts of a warp's access (1: no bank conflict):", "", head, *lines]


# -- look-back -------------------------------------------------------------------------------------------------------

# The states of the tiles before one tile, the first tile's first: S has published its sum, 1, and P its prefix.
BEFORE = ("", "P", "PS", "PSSS", "PPPP", "PSPS", "P" + 31 * "S", "P" + 32 * "S", "P" + 40 * "S", 20 * "P" + 44 * "S")
PREFIX = 1000  # of tile i it is 1000 (i + 1), so that each prefix shows which tile it is of

LOOK_CODE = """
__device__ State trial_states[70];

__global__ void trial_kernel(int* sums) {
    constexpr int PREFIXES[10] = {0, 1, 1, 1, 4, 3, 1, 1, 1, 20};  // the tiles up to here may have a prefix
    constexpr int TILES[10] = {0, 1, 2, 4, 4, 4, 32, 33, 41, 64};
    const int lane = threadIdx.x;
    for (int row = 0; row < 10; ++row) {
        for (int i = lane; i < 70; i += 32) {
            const bool prefix = i < PREFIXES[row] && (row != 5 || i != 1);
            trial_states[i] = prefix ? pack_state(PREFIX, 1000 * (i + 1)) : pack_state(SUM, 1);
        }
        __syncwarp();
        sums[row * 32 + lane] = look_back(trial_states, TILES[row]);
        __syncwarp();
    }
}

KATA_EXPORT void trial(int* sums, int n, cudaStream_t stream) {
    trial_kernel<<<1, 32, 0, stream>>>(sums);
}
"""


def prefix_of(states: str) -> int:
    """What look-back finds: the nearest prefix and the sums after it."""
    nearest = states.rfind("P")
    return PREFIX * (nearest + 1) + len(states) - 1 - nearest if states else 0


def in_short(states: str) -> str:
    """PSSSS as P 4S, the tile at the right end nearest."""
    runs: list[list[str]] = []
    for state in states:
        if runs and runs[-1][0] == state:
            runs[-1].append(state)
        else:
            runs.append([state])
    return " ".join(run[0] if len(run) == 1 else f"{len(run)}{run[0]}" for run in runs) or "no tile"


def looked_back(arrays: Mapping[str, ndarray]) -> str:
    """Row r of sums: what each lane gets for the states BEFORE[r]."""
    for row, states in enumerate(BEFORE):
        right = prefix_of(states)
        for lane in range(LANES):
            if (got := int(arrays["sums"][row, lane])) != right:
                return (
                    f"the states before tile {len(states)} are {in_short(states)}, the nearest last. An S is 1, the P "
                    f"of tile i is {PREFIX} (i + 1). Lane {lane} must get {right}. It gets {got}."
                )
    return ""


def look_picture(arrays: Mapping[str, ndarray]) -> list[str]:
    head = f"{'states before the tile':<24}{'lane 0':>10}{'must be':>10}"
    lines = [
        f"{in_short(states):<24}{int(arrays['sums'][row, 0]):>10}{prefix_of(states):>10}"
        for row, states in enumerate(BEFORE)
    ]
    return ["S: a sum of 1; P: a prefix of 1000 (tile + 1); the nearest tile is last", "", head, *lines]


# -- joined runs -----------------------------------------------------------------------------------------------------

HEADS = ((0, 0), (0, 1), (1, 0), (1, 1))
LEFT, RIGHT = 5, 7

JOINED_CODE = """
__global__ void trial_kernel(int* runs) {
    for (int row = 0; row < 4; ++row) {
        const Run run = joined({row / 2 == 1, 5}, {row % 2 == 1, 7});
        runs[2 * row] = run.head;
        runs[2 * row + 1] = run.sum;
    }
}

KATA_EXPORT void trial(int* runs, int n, cudaStream_t stream) {
    trial_kernel<<<1, 1, 0, stream>>>(runs);
}
"""


def joined_runs(arrays: Mapping[str, ndarray]) -> str:
    """Row r of runs: whether the joined run has a head, and its sum, for HEADS[r]."""
    for row, (left, right) in enumerate(HEADS):
        head, total = (int(value) for value in arrays["runs"][row])
        must = (left | right, RIGHT if right else LEFT + RIGHT)
        if (head, total) != must:
            return (
                f"left {{{left}, {LEFT}}} and right {{{right}, {RIGHT}}} join to {{{must[0]}, {must[1]}}}. "
                f"The code gives {{{head}, {total}}}."
            )
    return ""


def joined_picture(arrays: Mapping[str, ndarray]) -> list[str]:
    lines = [
        f"{{{left}, {LEFT}}} joined with {{{right}, {RIGHT}}}:  {{{int(head)}, {int(total)}}}"
        for (left, right), (head, total) in zip(HEADS, arrays["runs"].tolist(), strict=True)
    ]
    return ["{has a head, sum since the last head}:", "", *lines]


TRIES = (
    Trial(
        katas=("scan_warp_i32",),
        todos=(1,),
        about="the scan of a warp: lane i gets the sum over lanes 0 to i",
        code=SCAN_CODE,
        outputs=(Tensor("sums", (LANES, LANES), "i32"),),
        judge=scanned,
        picture=scan_picture,
    ),
    Trial(
        katas=("scan_block_brent_i32",),
        todos=(1,),
        about="padding: no bank conflict in the tree up, at most two lanes on a bank in the tree down",
        code=PADDED_CODE,
        outputs=(Tensor("places", (PLACES,), "i32"),),
        judge=without_conflict,
        picture=padded_picture,
    ),
    Trial(
        katas=("scan_lookback_i32",),
        todos=(1, 2),
        about="look-back over given states of 0 to 64 tiles",
        code=LOOK_CODE,
        outputs=(Tensor("sums", (len(BEFORE), LANES), "i32"),),
        judge=looked_back,
        picture=look_picture,
    ),
    Trial(
        katas=("scan_segmented_i32",),
        todos=(1,),
        about="two neighbouring runs joined to one",
        code=JOINED_CODE,
        outputs=(Tensor("runs", (len(HEADS), 2), "i32"),),
        judge=joined_runs,
        picture=joined_picture,
    ),
)
