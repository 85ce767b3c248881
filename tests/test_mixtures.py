"""Attention with a bug, written in Python -> the clue that names the key, the head, the logit or the column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy
import passed_before
import pytest
from test_check import Arrays
from test_diagnosis import clue, told

from grader.content.formulas import softmax
from grader.content.spec import Accumulated, InputKind, Size, Spec, Tensor, normal
from grader.judge.mixtures import _strangers
from grader.judge.target import Element, Part

pytestmark = passed_before.GRADER

D, TILE = 16, 8


def reference(Q: numpy.ndarray, K: numpy.ndarray, V: numpy.ndarray, sizes: dict[str, int]) -> numpy.ndarray:
    hidden = numpy.triu(numpy.full((sizes["N"],) * 2, sizes["causal"] == 1), 1)
    logits = Q @ K.swapaxes(-1, -2) / 4
    out: numpy.ndarray = softmax(numpy.where(hidden, -numpy.inf, logits)) @ V
    return out


def of_attention(*, causal: bool = False, first: int = 1) -> Spec:
    shape = ("H", "N", D)
    return Spec(
        computes="O = softmax(Q K^T / 4) V",
        inputs=(Tensor("Q", shape), Tensor("K", shape), Tensor("V", shape)),
        outputs=(Tensor("O", shape),),
        sizes={"H": Size(1, 3), "N": Size(first, 40), "causal": Size(int(causal), int(causal))},
        values=(InputKind("normal", normal()),),
        reference=reference,
        tolerance=Accumulated(terms=lambda sizes: 200, magnitude=lambda Q, K, V, sizes: abs(V).max() + 0 * Q),
        named_sizes=tuple({"H": h, "N": n, "causal": int(causal)} for h, n in ((1, first), (2, 7), (3, 20), (1, 33))),
        work=lambda sizes: sizes["H"] * sizes["N"],
    )


@dataclass
class Online:
    """Online softmax over tiles of keys; each field that is set is a bug."""

    mask: Callable[[int, int], bool] = lambda query, key: True  # whether a key counts
    keep_sum: bool = False
    keep_O: bool = False
    sum_of: Callable[[numpy.ndarray], float] = lambda weights: float(weights.sum())
    head_of_V: Callable[[int], int] = lambda head: head
    key_of_P: Callable[[int], int] = lambda key: key
    columns: Sequence[int] = tuple(range(D))  # of Q and K
    column_of_V: Sequence[int] = tuple(range(D))
    deaf: Sequence[int] = ()  # keys whose logits are 0
    padded: int = 0
    scale: float = 0.25

    def __call__(self, inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        Q, K, V = (inputs[name].astype(float) for name in "QKV")
        out = numpy.zeros_like(Q)
        heads, keys = Q.shape[:2]
        for h in range(heads):
            for i in range(keys):
                out[h, i] = self.row(Q[h, i], K[h], V[self.head_of_V(h)], i)
        return {"O": out.astype(numpy.float32)}

    def row(self, q: numpy.ndarray, K: numpy.ndarray, V: numpy.ndarray, query: int) -> numpy.ndarray:
        top, total, out = -numpy.inf, 0.0, numpy.zeros(D)
        x = K[:, list(self.columns)] @ q[list(self.columns)] * self.scale
        x[[key for key in self.deaf if key < len(x)]] = 0.0
        for first in range(0, len(K), TILE):
            places = [key for key in range(first, min(first + TILE, len(K))) if self.mask(query, key)]
            if not places:
                continue
            new = max(top, max(x[place] for place in places))
            shrink = float(numpy.exp(top - new))
            top = new
            weights = numpy.array([numpy.exp(x[min(self.key_of_P(place), len(K) - 1)] - top) for place in places])
            total = total * (1.0 if self.keep_sum and total else shrink) + self.sum_of(weights)
            out = out * (1.0 if self.keep_O and total else shrink) + weights @ V[places][:, list(self.column_of_V)]
        return out / (total + self.padded * float(numpy.exp(-top)))


ROLLED = (D - 1, *range(D - 1))


@pytest.mark.parametrize(
    ("bug", "facts"),
    [
        (Online(mask=lambda query, key: key != 3), ["V[0, 3, *] is not in the sum for O[0, 0, *]"]),
        (Online(mask=lambda query, key: key % 4 != 1), ["V[0, 1, *] is not in the sum for O[0, 0, *]"]),
        (Online(head_of_V=lambda head: 0), ["O[1, 0, *]", "V[0, 0..", "is added to", "V[1, 0..", "is not in the sum"]),
        (Online(keep_O=True), ["V[0, 0..7, *]", "e times too large", "smaller maximum is not rescaled"]),
        (Online(keep_sum=True), ["counts 8 of the 9 weights e times too large", "smaller maximum is not rescaled"]),
        (Online(key_of_P=lambda key: key ^ 1), ["V[0, 0, *] has the weight that K[0, 1, *] makes, not K[0, 0, *]"]),
        (Online(columns=range(D - 1)), ["column 15 is not in the products of rows of Q and K"]),
        (Online(columns=[*range(D), 2]), ["column 2 counts 2 times in the products of rows"]),
        (Online(column_of_V=ROLLED), ["column 0 of O[0, 0, *] is made of column 15 of V"]),
        (Online(padded=7), ["their sum counts 7 too many"]),
        (Online(deaf=range(1, 40)), ["the weight of V[0, 3, *] in O[0, 0, *] does not depend on K[0, 3, *]"]),
        (Online(scale=1.0), ["all logits are 4 times what they must be"]),
    ],
)
def test_what_attention_does_wrong_is_named(bug: Online, facts: list[str]) -> None:
    words = clue(told(bug, of_attention(first=4)), "probe")
    missing = [fact for fact in facts if fact not in words]
    assert not missing, words


def test_a_mask_that_is_off_by_one() -> None:
    words = clue(told(Online(mask=lambda query, key: key <= query + 1), of_attention(causal=True, first=4)), "probe")
    assert "V[0, 1, *] is added to O[0, 0, *], and does not belong there" in words


def test_means_of_labels_are_no_copies() -> None:
    """With equal weights an element of O is the mean of two, whose label is that of a third."""
    words = clue(told(Online(columns=range(8)), of_attention(first=2)), "probe")
    assert "got V" not in words
    assert "columns 8 to 15 are not in the products" in words


@pytest.mark.parametrize(
    "answer",
    [
        lambda inputs, sizes: {"O": (inputs["V"] * numpy.float32(1.5))},
        lambda inputs, sizes: {"O": numpy.sin(7 * inputs["V"] + inputs["K"])},
        lambda inputs, sizes: {"O": inputs["Q"] * inputs["K"] + inputs["V"] ** 2},
    ],
)
def test_what_is_no_mean_gets_no_weights(answer: Callable[[Arrays, dict[str, Any]], Arrays]) -> None:
    words = clue(told(answer, of_attention(first=4)), "probe")
    assert "logit" not in words and "rescaled" not in words and "products of rows" not in words


def test_rows_that_take_the_weights_of_others_are_no_sums_that_are_not_rescaled() -> None:
    """Where registers 1 and 2 of a fragment are exchanged, keys 8 to 15 of a row have the weights that keys 0 to 7 have
    in the row 8 below. Beside a larger logit of key 0, the weight of key 8 in row 1 is e times too large, too."""

    def answer(inputs: Arrays, sizes: dict[str, Any]) -> Arrays:
        Q, K, V = (inputs[name].astype(float) for name in "QKV")
        heads, n = Q.shape[:2]
        out = numpy.zeros_like(Q)
        for h in range(heads):
            logits = numpy.zeros((-(-n // 16) * 16,) * 2)
            logits[:n, :n] = Q[h] @ K[h].T / 4
            weights = numpy.exp(logits - logits[:, :n].max(axis=1, keepdims=True))
            weights[:, n:] = 0.0
            total = weights.sum(axis=1, keepdims=True)
            mixed = weights.reshape(-1, 2, 8, weights.shape[1] // 16, 2, 8).copy()
            above, below = mixed[:, 0, :, :, 1].copy(), mixed[:, 1, :, :, 0].copy()
            mixed[:, 0, 1:, :, 1], mixed[:, 1, :, :, 0] = below[:, 1:], above  # row 0 is right: row 1 is asked about
            out[h] = (mixed.reshape(weights.shape) / total)[:n, :n] @ V[h]
        return {"O": out.astype(numpy.float32)}

    assert "rescaled" not in clue(told(answer, of_attention(first=9)), "probe")


def test_a_row_that_counts_several_times_is_followed_with_its_number() -> None:
    mean = SimpleNamespace(values=SimpleNamespace(name="V"), width=16, target=SimpleNamespace(flat=18))
    found = list(_strangers(mean, numpy.array([0.2, 0.2, 0.6]), numpy.full(3, 1 / 3)))  # type: ignore[arg-type]
    assert found == [Element("V", 2 * 16 + 2, Part.REPEATED, 3)]
    assert not list(_strangers(mean, numpy.full(3, 1 / 3), numpy.full(3, 1 / 3)))  # type: ignore[arg-type]
