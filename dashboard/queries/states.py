"""The states that a job can be started from: its completed savepoints, and the checkpoints that outlive their run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.models import CheckedState, Checkpoint, Job, Run, Savepoint, SavepointState
from monitoring.recovery.states import restore_candidates, retained_checkpoints

# An engine keeps a handful; of older ones it is not known whether they are still there.
RETAINED = 10
SAVEPOINTS = 20


@dataclass(frozen=True)
class Retained:
    """A retained checkpoint, and what was found when its files were last looked at."""

    checkpoint: Checkpoint
    checked_at: datetime | None = None
    problem: str = ""


@dataclass(frozen=True)
class Choice:
    """A state that the job could be started from. `key` is what the form sends back."""

    key: str
    label: str
    taken_at: datetime
    size: int | None
    path: str
    source: Savepoint | str  # as restart_from takes it
    run: Run | None = None  # the one that took it
    note: str = ""
    problem: str = ""  # what was wrong with its files when last looked at


def read_retained(job: Job) -> list[Retained]:
    """The newest first; runs and their launch versions are read with them."""
    found = list(retained_checkpoints(job).select_related("run__launch_version")[:RETAINED])
    looks = {look.path: look for look in job.checked_states.filter(path__in=[each.external_path for each in found])}
    return [_retained(each, looks.get(each.external_path)) for each in found]


def _retained(checkpoint: Checkpoint, look: CheckedState | None) -> Retained:
    return Retained(checkpoint, look.checked_at, look.problem) if look else Retained(checkpoint)


def offered_states(job: Job) -> list[Choice]:
    """Completed savepoints, and the newest checkpoints that outlive their run, newest first."""
    completed = job.savepoints.filter(state=SavepointState.COMPLETED).exclude(path="")
    savepoints = completed.select_related("checkpoint", "run__launch_version")
    kept = savepoints.exclude(checkpoint__discarded=True)[:SAVEPOINTS]
    choices = [*map(_savepoint, kept), *map(_checkpoint, read_retained(job))]
    return sorted(choices, key=lambda choice: choice.taken_at, reverse=True)


def best_of(job: Job, choices: list[Choice]) -> Choice | None:
    """What the automation would take; else the newest that is not known to be damaged."""
    sound = [choice for choice in choices if not choice.problem] or choices
    offered = {choice.path: choice for choice in reversed(sound)}
    best = (offered[state.path] for state in restore_candidates(job) if state.path in offered)
    return next(best, sound[0] if sound else None)


def _savepoint(savepoint: Savepoint) -> Choice:
    checkpoint = savepoint.checkpoint
    label = f"Savepoint {checkpoint.checkpoint_id}" if checkpoint else f"Savepoint {_own_part(savepoint.path)}"
    taken_at = checkpoint.triggered_at if checkpoint else savepoint.requested_at
    return Choice(
        key=f"savepoint-{savepoint.pk}",
        label=label,
        taken_at=taken_at,
        size=savepoint.size,
        path=savepoint.path,
        source=savepoint,
        run=savepoint.run,
        note=savepoint.note,
        problem=savepoint.problem,
    )


def _own_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", maxsplit=1)[-1].removeprefix("savepoint-")


def _checkpoint(retained: Retained) -> Choice:
    checkpoint = retained.checkpoint
    return Choice(
        key=f"checkpoint-{checkpoint.pk}",
        label=f"Checkpoint {checkpoint.checkpoint_id}",
        taken_at=checkpoint.triggered_at,
        size=checkpoint.state_size,
        path=checkpoint.external_path,
        source=checkpoint.external_path,
        run=checkpoint.run,
        problem=retained.problem,
    )
