"""The snapshots from which a job can be started.

These are completed savepoints, retained checkpoints, and checkpoints that no poll saw in the directory of a dead run.
For a running job, the savepoint with which it will be stopped is offered too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from django.db.models import Count, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from monitoring.kubernetes.job_resources import resource_of
from monitoring.launches import what_changed
from monitoring.models import (
    AttemptState,
    Checkpoint,
    CheckpointStatus,
    Job,
    LaunchVersion,
    Run,
    Savepoint,
    SavepointState,
)
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.recovery.candidates import State
from monitoring.recovery.manual import continues_from_stop
from monitoring.recovery.states import restore_candidates, retained_checkpoints
from monitoring.recovery.unseen import found_checkpoints
from monitoring.savepoints.storage_threads import StorageSilent, TimeLimit
from monitoring.savepoints.stored import LISTED_WITHIN_S, size_of

# The newest checkpoints that are offered. An engine retains only a few, and older ones may be deleted already.
RETAINED = 10
SAVEPOINTS = 20
# The restarts from which the duration of the next one is estimated.
ESTIMATED_FROM, ESTIMATED_FROM_AT_LEAST = 10, 3
FROM_STOP = "stop"
_FOUND = re.compile(r"found-(\d{1,9})-(\d{1,18})")


@dataclass(frozen=True)
class Retained:
    """A retained checkpoint, and the result of the last check of its files."""

    checkpoint: Checkpoint
    checked_at: datetime | None = None
    problem: Reason | str = ""


@dataclass(frozen=True)
class Choice:
    """A snapshot from which the job can be started. The form sends back its `key`.

    The savepoint with which the job will be stopped has no path and no size yet, and its `taken_at` is now.
    """

    key: str
    label: str
    taken_at: datetime
    size: int | None
    path: str
    source: Savepoint | str | None  # the argument for restart_from
    run: Run | None = None  # the run that took the snapshot
    note: str = ""
    problem: Reason | str = ""  # the problem that the last check of its files found
    found: bool = False  # found in the directory of a dead run, not in the history; `taken_at` is an estimate

    @property
    def is_future(self) -> bool:
        return self.source is None


def read_retained(job: Job) -> list[Retained]:
    """Return the newest retained checkpoints with their runs and launch versions, newest first."""
    found = list(retained_checkpoints(job).select_related("run__launch_version")[:RETAINED])
    looks = {look.path: look for look in job.checked_states.filter(path__in=[each.external_path for each in found])}
    return [
        Retained(each, look.checked_at, stored(look, "problem"))
        if (look := looks.get(each.external_path))
        else Retained(each)
        for each in found
    ]


@dataclass(frozen=True)
class Offer:
    """The snapshots from which the job can be started, newest first.

    `left` has the checkpoints that were found in the directories of dead runs. If `silent` is set, it is the reason
    why some of them may be missing.
    """

    choices: list[Choice]
    left: list[State]
    silent: Reason | None = None


def offered_snapshots(job: Job) -> Offer:
    """Return the offered snapshots. The wait for the storage is limited to LISTED_WITHIN_S."""
    left = _UnlistedCheckpoints(job, TimeLimit(LISTED_WITHIN_S))
    return Offer([*_stopping_savepoint(job), *_newest_first(_stored(job) + left.choices())], left.states, left.silent)


def offered_snapshot(job: Job, key: str) -> Choice | None:
    """Return the snapshot with the key. The storage is read only for a checkpoint that is not in the database.

    Raises:
        StorageSilent: The storage did not answer in time.
    """
    if not _FOUND.fullmatch(key):
        known = [*_stopping_savepoint(job), *_stored(job)]
        return next((choice for choice in known if choice.key == key), None)
    left = _UnlistedCheckpoints(job, TimeLimit(LISTED_WITHIN_S))
    choice = next((choice for choice in left.choices() if choice.key == key), None)
    if choice is None and left.silence is not None:
        raise left.silence
    return choice


def offered_savepoints(job: Job) -> list[Choice]:
    """Return the savepoints, newest first. For a running job, the first is the savepoint taken when it stops."""
    return [*_stopping_savepoint(job), *_newest_first(_savepoints(job))]


def remaining_snapshot(job: Job) -> Choice | None:
    """Return the newest known snapshot that remains if the job is canceled now, or None if none does.

    Snapshots with a known problem do not count.
    """
    return next((choice for choice in _newest_first(_stored(job)) if not choice.problem), None)


def why_not_offered(job: Job, key: str) -> str:
    """Return a sentence that explains why the snapshot with the key is not offered."""
    found = _FOUND.fullmatch(key)
    if found is None:
        gone = job.savepoints.filter(state=SavepointState.COMPLETED, gone_at__isnull=False)
        if key in {f"savepoint-{pk}" for pk in gone.values_list("pk", flat=True)}:
            return _("Snapshot: the files of this savepoint were deleted. Select one of the snapshots below.")
        return _("Snapshot: the selected snapshot is no longer offered. Select one of the snapshots below.")
    run, number = int(found[1]), int(found[2])
    return _(
        "Snapshot: checkpoint %(number)s, which was found in the directory of run %(run)s, no longer exists. Nothing "
        "was stopped or started. Select one of the snapshots below."
    ) % {"number": number, "run": run}


def preselected_snapshot(job: Job, offer: Offer) -> Choice | None:
    """Return the snapshot that is preselected.

    For a running job this is the savepoint taken when it stops: the job replays nothing, and no newer checkpoint can
    appear. Otherwise it is the snapshot that recovery would select, else the newest without a known problem.
    """
    if planned := next((choice for choice in offer.choices if choice.is_future), None):
        return planned
    sound = [choice for choice in offer.choices if not choice.problem] or offer.choices
    offered = {choice.path: choice for choice in reversed(sound)}
    candidates = restore_candidates(job, offer.left)
    best = (offered[state.path] for state in candidates if state.path in offered)
    return next(best, sound[0] if sound else None)


def newest_savepoint_of(offer: Offer) -> Choice | None:
    """Return the newest stored savepoint without a known problem, or None."""
    sound = (each for each in offer.choices if isinstance(each.source, Savepoint) and not each.problem)
    return max(sound, key=lambda choice: choice.taken_at, default=None)


def _newest_first(choices: list[Choice]) -> list[Choice]:
    return sorted(choices, key=lambda choice: choice.taken_at, reverse=True)


def _stored(job: Job) -> list[Choice]:
    return [*_savepoints(job), *map(_checkpoint, read_retained(job))]


def _stopping_savepoint(job: Job) -> list[Choice]:
    if not continues_from_stop(job):
        return []
    label = (
        _("Latest state, by the Flink operator") if resource_of(job) else _("New savepoint, taken when the job stops")
    )
    return [Choice(FROM_STOP, label, timezone.now(), None, "", None, job.current_run)]


def _savepoints(job: Job) -> list[Choice]:
    completed = job.savepoints.filter(state=SavepointState.COMPLETED, gone_at=None).exclude(path="")
    kept = completed.exclude(checkpoint__discarded=True).select_related("checkpoint", "run__launch_version")
    return [_savepoint(savepoint) for savepoint in kept[:SAVEPOINTS]]


class _UnlistedCheckpoints:
    """Checkpoints in the directories of dead runs, listed once and within `time_limit`."""

    def __init__(self, job: Job, time_limit: TimeLimit) -> None:
        self._job, self._time_limit = job, time_limit
        self.silence: StorageSilent | None = None
        try:
            self.states = found_checkpoints(job, time_limit)[:RETAINED]
        except StorageSilent as silence:
            self.states, self.silence = [], silence

    @property
    def silent(self) -> Reason | None:
        return SavepointReason.SENTENCE(clause=self.silence.reason) if self.silence else None

    def choices(self) -> list[Choice]:
        if not self.states:
            return []
        numbers = {state.run_number for state in self.states}
        runs = self._job.runs.select_related("launch_version").filter(number__in=numbers)
        by_number = {run.number: run for run in runs}
        looks = self._job.checked_states.filter(path__in=[state.path for state in self.states])
        problems = {look.path: stored(look, "problem") for look in looks}
        return [self._choice(state, by_number[state.run_number], problems.get(state.path, "")) for state in self.states]

    def _choice(self, state: State, run: Run, problem: Reason | str) -> Choice:
        return Choice(
            key=f"found-{run.number}-{state.checkpoint_id}",
            label=_("Checkpoint %(checkpoint_id)s") % {"checkpoint_id": state.checkpoint_id},
            taken_at=state.taken_at,
            size=self._size(state),
            path=state.path,
            source=state.path,
            run=run,
            problem=problem,
            found=True,
        )

    def _size(self, state: State) -> int | None:
        """Return the size of a checkpoint, or None if the storage has stopped answering."""
        if self.silence is None:
            try:
                return size_of(state.path, self._time_limit)
            except StorageSilent as silence:
                self.silence = silence
        return None


def _savepoint(savepoint: Savepoint) -> Choice:
    checkpoint = savepoint.checkpoint
    label = _("Savepoint %(name)s") % {"name": checkpoint.checkpoint_id if checkpoint else _own_part(savepoint.path)}
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
        problem=stored(savepoint, "problem"),
    )


def _own_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", maxsplit=1)[-1].removeprefix("savepoint-")


def _checkpoint(retained: Retained) -> Choice:
    checkpoint = retained.checkpoint
    return Choice(
        key=f"checkpoint-{checkpoint.pk}",
        label=_("Checkpoint %(checkpoint_id)s") % {"checkpoint_id": checkpoint.checkpoint_id},
        taken_at=checkpoint.triggered_at,
        size=checkpoint.state_size,
        path=checkpoint.external_path,
        source=checkpoint.external_path,
        run=checkpoint.run,
        problem=retained.problem,
    )


@dataclass(frozen=True)
class ChangesSince:
    """Events after a snapshot was taken, which a restart from it would undo or repeat.

    `version` is the launch version that took the snapshot, or None if it is unknown. `changed` lists the differences
    of the present launch. `settings` lists the changed keys of the engine's configuration.
    """

    completed: int
    failed: int
    runs: int
    version: LaunchVersion | None
    changed: list[str]
    settings: list[str]


def changes_since(job: Job, run: Run | None, taken_at: datetime) -> ChangesSince:
    """Return the events since `run` took a snapshot at `taken_at`."""
    counted = Checkpoint.objects.filter(run__job=job, is_savepoint=False, triggered_at__gt=taken_at).aggregate(
        completed=Count("pk", filter=Q(status=CheckpointStatus.COMPLETED)),
        failed=Count("pk", filter=Q(status=CheckpointStatus.FAILED)),
    )
    version = run.launch_version if run else None
    changes = job.configuration_changes.filter(at__gt=taken_at).order_by("key")
    return ChangesSince(
        completed=counted["completed"],
        failed=counted["failed"],
        runs=job.runs.filter(started_at__gt=taken_at).count(),
        version=version,
        changed=what_changed(version.spec, job.launch) if version and job.launch else [],
        settings=list(dict.fromkeys(changes.values_list("key", flat=True)[:50])),
    )


@dataclass(frozen=True)
class RestartEstimate:
    """How many seconds the last successful restarts of a job took, from the request until the new run was RUNNING."""

    restarts: int
    median_s: float
    shortest_s: float
    longest_s: float


def estimate_restart(job: Job) -> RestartEstimate | None:
    """Return the duration of the last successful restarts, or None if there are too few of them.

    First starts of a job do not count, because they have no run to stop and no snapshot to restore.
    """
    succeeded = job.restart_attempts.filter(
        state=AttemptState.SUCCEEDED, old_run__isnull=False, ended_at__isnull=False
    ).order_by("-created_at", "-id")
    times = succeeded.values_list("created_at", "ended_at")[:ESTIMATED_FROM]
    took = [(ended_at - created_at).total_seconds() for created_at, ended_at in times if ended_at]
    if len(took) < ESTIMATED_FROM_AT_LEAST:
        return None
    return RestartEstimate(len(took), median(took), min(took), max(took))
