"""Which stored states a job may be restored from, the best first. Pure.

Newest first, by the time the state was taken. A run that was itself restored from an older state (somebody went back on
purpose) hides what earlier runs took after that state: going on from there would undo the decision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.models import RestoreFrom
from monitoring.savepoints.history import plain_path


@dataclass(frozen=True)
class State:
    """A completed checkpoint or savepoint whose files should still be there."""

    path: str
    taken_at: datetime
    is_savepoint: bool
    run_number: int
    checkpoint_id: int | None = None
    savepoint_row: int | None = None

    def __str__(self) -> str:
        kind = "savepoint" if self.is_savepoint else "checkpoint"
        number = f" {self.checkpoint_id}" if self.checkpoint_id is not None else ""
        return f"{kind}{number} of run {self.run_number}, taken {self.taken_at:%Y-%m-%d %H:%M:%S %Z}"


@dataclass(frozen=True)
class Life:
    """A run, and the path it was restored from ("" when it was not, or nobody knows)."""

    number: int
    restored_path: str


# More than so many are not looked for: each is a start that the engine refuses.
MOST_UNSEEN = 10
_NUMBERED = re.compile(r"(.*/chk-)(\d+)/?")


def unseen(newest: State, lost_at: datetime, interval: timedelta) -> list[State]:
    """The checkpoints that a lost run may have completed after `newest`, the last one that was seen of it; the last
    possible one first.

    They are at the places whose numbers follow; the engine refuses those that are not there. `newest` may be gone for
    the sake of one of them, and where it is still there, going on from it would commit again what sinks have committed.
    """
    place = _NUMBERED.fullmatch(newest.path)
    if newest.is_savepoint or place is None:
        return []
    count = min(MOST_UNSEEN, math.ceil((lost_at - newest.taken_at) / interval))
    following = ((number, newest.taken_at + interval * number) for number in range(count, 0, -1))
    return [
        State(f"{place[1]}{int(place[2]) + number}", at, False, newest.run_number, int(place[2]) + number)
        for number, at in following
    ]


def candidates(states: Collection[State], lives: Collection[Life], restore_from: RestoreFrom) -> list[State]:
    """Every state of the line that leads to the newest run, newest first; each place once."""
    chosen = [state for state in _in_line(states, lives) if restore_from is RestoreFrom.NEWEST or state.is_savepoint]
    # Of one place, the savepoint's own row comes first: it is what people know it by.
    chosen.sort(key=lambda state: (state.taken_at, state.savepoint_row is not None), reverse=True)
    return list({plain_path(state.path): state for state in reversed(chosen)}.values())[::-1]


def _in_line(states: Collection[State], lives: Collection[Life]) -> Sequence[State]:
    taken = {plain_path(state.path): state.taken_at for state in states}
    kept: list[State] = []
    not_after: datetime | None = None
    for life in sorted(lives, key=lambda life: life.number, reverse=True):
        own = [state for state in states if state.run_number == life.number]
        kept += [state for state in own if not_after is None or state.taken_at <= not_after]
        restored_at = taken.get(plain_path(life.restored_path)) if life.restored_path else None
        if restored_at is not None:
            not_after = restored_at if not_after is None else min(not_after, restored_at)
    return kept
