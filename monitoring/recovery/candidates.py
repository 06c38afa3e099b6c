"""Order the snapshots from which a job may be restored, the best first. Pure functions.

The newest snapshot is first. A guess (a path that nobody has seen) comes directly after the checkpoint that it follows:
it exists only if that checkpoint was deleted, or if the engine retains several.

If a person restored a run from an older snapshot, snapshots of earlier runs after that one are left out. Restoring one
of these would undo the person's decision.
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
    """A completed checkpoint or savepoint whose files should still exist.

    For a guess, `follows` is the time of the checkpoint before it; None: the snapshot was seen.
    """

    path: str
    taken_at: datetime
    is_savepoint: bool
    run_number: int
    checkpoint_id: int | None = None
    savepoint_row: int | None = None
    gone: bool = False  # the last check found no files
    follows: datetime | None = None

    @property
    def reason(self) -> Reason:
        """Return the snapshot's name for people."""
        args = {"run": self.run_number, "at": self.taken_at}
        if self.checkpoint_id is None:
            return (Why.UNNUMBERED_SAVEPOINT if self.is_savepoint else Why.UNNUMBERED_CHECKPOINT)(**args)
        return (Why.SAVEPOINT if self.is_savepoint else Why.CHECKPOINT)(number=self.checkpoint_id, **args)


@dataclass(frozen=True)
class RestoredRun:
    """A run, and the path from which it was restored ("" if it was not restored or the path is unknown)."""

    number: int
    restored_path: str


def retains(
    state: RunState, checkpoint_config: Mapping[str, object], outcome: Mapping[str, object] | None = None
) -> bool:
    """Return whether checkpoints of a run remain after its end in this state. A live run counts as if it were canceled.

    Without externalization, an engine deletes them. It always deletes those of a FINISHED job, unless the job ended by
    itself and its final savepoint failed.
    """
    if state is RunState.FINISHED:
        return (outcome or {}).get("saved") is False
    externalization = checkpoint_config.get("externalization")
    if not isinstance(externalization, dict):
        return True  # not known; a snapshot is verified before it is used
    if not externalization.get("enabled", True):
        return False
    canceled = state not in DEAD
    return not (canceled and externalization.get("delete_on_cancellation", False))


def candidates(states: Collection[State], runs: Collection[RestoredRun], restore_from: RestoreFrom) -> list[State]:
    """Return the snapshots of the line of runs that leads to the newest run, the best first, each path once."""
    chosen = [state for state in _in_line(states, runs) if restore_from is RestoreFrom.NEWEST or state.is_savepoint]
    # If a checkpoint and a savepoint have the same path, list the savepoint first: people know it by that name.
    chosen.sort(key=_order, reverse=True)
    return list({plain_path(state.path): state for state in reversed(chosen)}.values())[::-1]


def _order(state: State) -> tuple[datetime, bool, bool, int]:
    """Return the sort key; the largest is tried first.

    Among guesses, the lowest number is tried first, because usually only a few checkpoints completed unseen.
    """
    if state.follows is not None:
        return state.follows, False, False, -(state.checkpoint_id or 0)
    return state.taken_at, True, state.savepoint_row is not None, 0


def _in_line(states: Collection[State], runs: Collection[RestoredRun]) -> Sequence[State]:
    taken = {plain_path(state.path): state.taken_at for state in states}
    kept: list[State] = []
    not_after: datetime | None = None
    for run in sorted(runs, key=lambda run: run.number, reverse=True):
        own = [state for state in states if state.run_number == run.number]
        kept += [state for state in own if not_after is None or state.taken_at <= not_after]
        restored_at = taken.get(plain_path(run.restored_path)) if run.restored_path else None
        if restored_at is not None:
            not_after = restored_at if not_after is None else min(not_after, restored_at)
    return kept
