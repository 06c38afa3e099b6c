"""Which stored states a job may be restored from, the best first. Pure.

Newest first, by the time the state was taken. A guess comes right behind the checkpoint that it follows: it exists only
if that one is gone, or the engine retains several.

A run that was itself restored from an older state (somebody went back on purpose) hides what earlier runs took after
that state: going on from there would undo the decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from monitoring.models import RestoreFrom, RunState
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.detection import DEAD
from monitoring.savepoints.history import plain_path


@dataclass(frozen=True)
class State:
    """A completed checkpoint or savepoint whose files should still be there. `follows`: of a guess, when the checkpoint
    was taken whose number it goes on from; None: the state was seen."""

    path: str
    taken_at: datetime
    is_savepoint: bool
    run_number: int
    checkpoint_id: int | None = None
    savepoint_row: int | None = None
    gone: bool = False  # nothing was there when somebody last looked
    follows: datetime | None = None

    @property
    def reason(self) -> Reason:
        """What a person knows it by."""
        args = {"run": self.run_number, "at": self.taken_at}
        if self.checkpoint_id is None:
            return (Why.UNNUMBERED_SAVEPOINT if self.is_savepoint else Why.UNNUMBERED_CHECKPOINT)(**args)
        return (Why.SAVEPOINT if self.is_savepoint else Why.CHECKPOINT)(number=self.checkpoint_id, **args)


@dataclass(frozen=True)
class Life:
    """A run, and the path it was restored from ("" when it was not, or nobody knows)."""

    number: int
    restored_path: str


def retains(
    state: RunState, checkpoint_config: Mapping[str, object], outcome: Mapping[str, object] | None = None
) -> bool:
    """Do checkpoints outlive a run that ended so, or lives: then somebody cancels it? Without externalization an engine
    deletes them; those of a FINISHED job always, unless it ended by itself and no final savepoint could be taken."""
    if state is RunState.FINISHED:
        return (outcome or {}).get("saved") is False
    externalization = checkpoint_config.get("externalization")
    if not isinstance(externalization, dict):
        return True  # not known; a state is validated before it is used
    if not externalization.get("enabled", True):
        return False
    canceled = state not in DEAD
    return not (canceled and externalization.get("delete_on_cancellation", False))


def candidates(states: Collection[State], lives: Collection[Life], restore_from: RestoreFrom) -> list[State]:
    """Every state of the line that leads to the newest run, the first to try first; each place once."""
    chosen = [state for state in _in_line(states, lives) if restore_from is RestoreFrom.NEWEST or state.is_savepoint]
    # Of one place, the savepoint's own row comes first: it is what people know it by.
    chosen.sort(key=_order, reverse=True)
    return list({plain_path(state.path): state for state in reversed(chosen)}.values())[::-1]


def _order(state: State) -> tuple[datetime, bool, bool, int]:
    """The largest first. Of several guesses the lowest number first: an engine that retains one has exactly one, and
    the fewer it completed unseen, the nearer it is."""
    if state.follows is not None:
        return state.follows, False, False, -(state.checkpoint_id or 0)
    return state.taken_at, True, state.savepoint_row is not None, 0


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
