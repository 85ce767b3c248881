"""A commit or a stash -> the learner's files in it: those of exercises/ that are not the skeletons of that commit.

An update of the clone may change skeletons that a learner had edited in place. What was edited is judged by the
solutions of its own commit, so a later change of a skeleton is never taken for a learner's work.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from grader.content import skeleton
from grader.content.catalog import CatalogError
from grader.content.skeleton import SkeletonError


def work_in(root: Path, commit: str) -> Mapping[str, bytes]:
    """The edited files of a commit, by the name of their kata. Raises CatalogError if git has no such commit."""
    listed = _git(root, "ls-tree", "-r", "-z", f"{commit}^{{tree}}", "--", "exercises", "solutions").split(b"\0")
    blobs: dict[str, str] = {}
    for entry in filter(None, listed):
        facts, _, path = entry.decode(errors="replace").partition("\t")
        if path.endswith(".cu"):
            blobs[path] = facts.split()[2]
    pairs = {path: path.replace("exercises/", "solutions/", 1) for path in blobs if path.startswith("exercises/")}
    pairs = {path: solution for path, solution in pairs.items() if solution in blobs}
    wanted = list(dict.fromkeys(blobs[path] for pair in pairs.items() for path in pair))
    texts = dict(zip(wanted, _contents(root, wanted), strict=True))
    return {
        Path(path).stem: texts[blobs[path]]
        for path, solution in pairs.items()
        if _is_edited(texts[blobs[path]], texts[blobs[solution]])
    }


def _is_edited(file: bytes, solution: bytes) -> bool:
    try:
        pristine = skeleton.derive(solution.decode(errors="replace"))
    except SkeletonError:  # of an old commit's rules: keep the file rather than lose it
        return True
    return not skeleton.is_pristine(file.decode(errors="replace"), pristine)


def _contents(root: Path, blobs: Sequence[str]) -> list[bytes]:
    found = _git(root, "cat-file", "--batch", given="".join(f"{blob}\n" for blob in blobs).encode())
    contents, at = [], 0
    for _ in blobs:
        end = found.index(b"\n", at)
        size = int(found[at:end].split()[2])
        contents.append(found[end + 1 : end + 1 + size])
        at = end + 1 + size + 1  # the content is followed by a line end
    return contents


def _git(root: Path, *arguments: str, given: bytes = b"") -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], input=given, capture_output=True)
    except FileNotFoundError:
        raise CatalogError("git is not installed, and only git can read a commit.") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise CatalogError(f"git cannot read that commit ({said}). `git stash list` and `git log` name commits.")
    return done.stdout
