"""Find checkpoints that a dead run completed but no poll saw.

If Waymark can reach the run's directory, it lists the checkpoints there. Otherwise it guesses paths with the numbers
after the last known checkpoint. Waymark's job manager can check such a path without starting the job, so its paths are
ordered by time. On Flink each check is a start of the job, so the path is marked as a guess (candidates.py).
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from monitoring.models import Checkpoint, CheckpointStatus, Engine, Job, RestoreFrom, Run, RunState
from monitoring.recovery.candidates import State, retains
from monitoring.recovery.detection import DEAD
from monitoring.savepoints.storage_threads import StorageSilent, TimeLimit
from monitoring.savepoints.stored import LISTED_WITHIN_S, checkpoints_in

# At most this many paths are tried: on Flink, each wrong one is a refused start.
MOST_GUESSED = 10
# How many runs without a checkpoint are examined.
RUNS = 20
_NUMBERED = re.compile(r"(.*)/chk-(\d+)/?")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unseen:
    """Unseen checkpoints, newest first. `silent`: the errors of storage that did not answer."""

    states: list[State]
    silent: list[StorageSilent]


def unseen_checkpoints(job: Job) -> Unseen:
    """Return unseen checkpoints of the run with the last known checkpoint, and of later runs.

    If storage does not answer, paths are guessed instead.
    """
    unseen = Unseen([], [])
    if job.restore_from == RestoreFrom.SAVEPOINT:
        return unseen
    searches = _searches(job)
    time_limit = TimeLimit(LISTED_WITHIN_S)
    for search in searches:
        try:
            found = search.found(time_limit)
        except StorageSilent as silent:
            log.warning("%s.", silent)
            unseen.silent.append(silent)
            found = None
        unseen.states.extend(search.guessed() if found is None else found)
    return unseen


def found_checkpoints(job: Job, time_limit: TimeLimit) -> list[State]:
    """Return only unseen checkpoints that were found in storage: a person may choose these.

    The job's `restore_from` does not matter. Raises StorageSilent.
    """
    return [state for search in _searches(job) for state in search.found(time_limit) or ()]


def checkpoint_directory(job: Job, engine_job_id: str) -> str:
    """Return the checkpoint directory of a start with this ID, derived from the job's runs, "" if unknown."""
    for run in job.runs.order_by("-number")[:RUNS]:
        if (seen := _last_seen(run)) is not None:
            return _beside(seen, run, engine_job_id)
    return ""


@dataclass(frozen=True)
class _Search:
    """A search for checkpoints of `run`. `seen`: the last known checkpoint; `known`: its run, maybe an earlier one."""

    run: Run
    ended_at: datetime
    known: Run
    seen: State

    def guessed(self) -> list[State]:
        # For a FAILED run, the engine itself reports the last checkpoints.
        if self.run != self.known or self.run.state != RunState.LOST:
            return []
        places = following(self.seen, self.ended_at, _interval(self.run))
        if self.run.job.cluster.engine == Engine.SPARK:
            return places
        return [replace(place, follows=self.seen.taken_at) for place in places]

    def found(self, time_limit: TimeLimit) -> list[State] | None:
        """Return the checkpoints in the run's directory, or None if it cannot be read. Raises StorageSilent."""
        directory, run = _directory(self.run, self.known, self.seen), self.run
        lying = checkpoints_in(directory, time_limit) if directory else None
        if lying is None:
            return None
        base, at = self.seen.checkpoint_id or 0, self.seen.taken_at
        if run != self.known:
            base, at = min(lying, default=0) - 1, run.started_at
        times = {each: min(at + _interval(run) * (each - base), self.ended_at) for each in lying if each > base}
        return [State(f"{directory}/chk-{each}", taken, False, run.number, each) for each, taken in times.items()]


def _searches(job: Job) -> list[_Search]:
    later: list[Run] = []
    for run in job.runs.order_by("-number").select_related("job__cluster")[:RUNS]:
        later.append(run)
        if (seen := _last_seen(run)) is not None:
            return [_Search(each, each.ended_at, run, seen) for each in later if each.ended_at and _is_dead(each)]
    return []


def _is_dead(run: Run) -> bool:
    """Return whether the run is dead and its checkpoints remain."""
    return run.state in DEAD and retains(RunState(run.state), run.checkpoint_config)


def following(seen: State, lost_at: datetime, interval: timedelta) -> list[State]:
    """Return the paths of the checkpoints that the run had time for after `seen`, whether they exist or not."""
    place = _NUMBERED.fullmatch(seen.path)
    if place is None or not interval:
        return []
    count = min(MOST_GUESSED, math.ceil((lost_at - seen.taken_at) / interval))
    numbered = ((int(place[2]) + number, seen.taken_at + interval * number) for number in range(count, 0, -1))
    return [State(f"{place[1]}/chk-{number}", at, False, seen.run_number, number) for number, at in numbered]


def _last_seen(run: Run) -> State | None:
    """Return the run's last known checkpoint, even a discarded one: an unseen one may have replaced it."""
    rows = Checkpoint.objects.filter(run=run, status=CheckpointStatus.COMPLETED, is_savepoint=False)
    row = rows.exclude(external_path="").order_by("-checkpoint_id").first()
    return None if row is None else State(row.external_path, row.triggered_at, False, run.number, row.checkpoint_id)


def _directory(run: Run, known: Run, seen: State) -> str:
    """Return the run's checkpoint directory, whose name is the run's ID, or "" if the known path has another form."""
    place = _NUMBERED.fullmatch(seen.path)
    if place is not None and run == known:
        return place[1]
    return _beside(seen, known, run.engine_job_id)


def _beside(seen: State, known: Run, engine_job_id: str) -> str:
    place = _NUMBERED.fullmatch(seen.path)
    base, _, name = place[1].rpartition("/") if place else ("", "", "")
    return f"{base}/{engine_job_id}" if name == known.engine_job_id else ""


def _interval(run: Run) -> timedelta:
    """Return the checkpoint interval, or zero if it is unknown or the job takes no periodic checkpoints."""
    interval = run.checkpoint_config.get("interval")
    return timedelta(milliseconds=interval) if isinstance(interval, int) and interval > 0 else timedelta()
