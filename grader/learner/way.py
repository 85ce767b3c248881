"""Tracks, states and progress -> where a learner is on the track that they chose, and what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grader.content.catalog import Catalog
from grader.content.start import BLANK
from grader.content.tracks import COLLECTION, FILE, Step, Track, load_tracks, track_of
from grader.learner.progress import History
from grader.learner.state import State, next_ones


@dataclass(frozen=True)
class Way:
    """A track and how far the learner is on it."""

    track: Track
    states: Mapping[str, State]

    def is_done(self, step: Step) -> bool:
        """Whether the step's kata is passed; at a milestone, from a blank file."""
        state = self.states[step.kata.name]
        return state.passed is not None and (not step.blank or BLANK in state.passed_from)

    @property
    def done(self) -> int:
        return sum(map(self.is_done, self.track.steps))

    @property
    def milestones(self) -> tuple[int, int]:
        """How many blanks are passed, and how many there are."""
        due = [step for step in self.track.steps if step.blank]
        return sum(map(self.is_done, due)), len(due)

    @property
    def next(self) -> Step | None:
        """The first step that is not done. What stands before a kata on its track is taught there."""
        return next((step for step in self.track.steps if not self.is_done(step)), None)

    def record(self) -> dict[str, Any]:
        """What `--json` gives of it."""
        passed, due = self.milestones
        return {
            "name": self.track.name,
            "about": self.track.about,
            "done": self.done,
            "steps": len(self.track.steps),
            "blanks_passed": passed,
            "blanks": due,
            "hours_estimate": self.track.hours,
        }


def way_of(catalog: Catalog, states: Mapping[str, State], known: History, name: str | None = None) -> Way | None:
    """The way on the track of this name, or else on the track that was chosen last.

    None for the whole collection, and where the chosen track is gone. Raises CatalogError if no track has the name.
    """
    wanted = name or known.track
    if wanted is None or wanted == COLLECTION or not (catalog.root / FILE).is_file():
        return None
    track = load_tracks(catalog).get(wanted) if name is None else track_of(catalog, name)
    return None if track is None else Way(track, states)


def in_order(catalog: Catalog, states: Mapping[str, State]) -> list[State]:
    """The states in the order of the whole collection."""
    if not (catalog.root / FILE).is_file():
        return list(states.values())
    return [states[kata.name] for kata in track_of(catalog, COLLECTION).katas]


def candidates(catalog: Catalog, states: Mapping[str, State], known: History) -> list[State]:
    """What to solve next, in this order: the rest of the chosen track, or else what is open of the whole collection."""
    way = way_of(catalog, states, known)
    left = [states[step.kata.name] for step in way.track.steps if not way.is_done(step)] if way is not None else []
    return left or next_ones(in_order(catalog, states))


def upcoming(catalog: Catalog, states: Mapping[str, State], known: History) -> State | None:
    return next(iter(candidates(catalog, states, known)), None)
