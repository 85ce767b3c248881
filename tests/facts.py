"""Facts in what the grader says: names, numbers, lines, values, key nouns. The sentences around them may change.

A fact is found whatever its case is. A name or number stands alone: 25 is not in 257, nor relu_f32 in relu_f32x4.
"""

from __future__ import annotations

import re


def has(text: str, *facts: str) -> bool:
    """Whether all facts are in the text; fails with those that are not."""
    missing = [fact for fact in facts if not re.search(_pattern(fact), text, re.IGNORECASE)]
    assert not missing, f"{missing} is not in:\n{text}"
    return True


def all_of(*facts: str) -> str:
    """The same as a regular expression, for ``pytest.raises(..., match=...)``."""
    return "(?is)" + "".join(f"(?=.*{_pattern(fact)})" for fact in facts)


def _pattern(fact: str) -> str:
    is_word = fact.isalpha() and len(fact) > 2
    before = r"(?<!\w)" if fact[0].isalnum() and not is_word else ""
    after = r"(?!\w)" if fact[-1].isalnum() and not is_word else ""
    return before + re.escape(fact) + after
