"""Checkpoints that a dead run completed and that no poll saw: in its directory, where Waymark can reach it; else at the
places whose numbers follow the last one that was seen.

Where the engine can check a state without starting a job, as Waymark's job manager can, such a place is tried by its
time. Elsewhere each try is a start of the job, so it is a guess (candidates.py).
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
from monitoring.savepoints.looking import Patience, StorageSilent
from monitoring.savepoints.stored import LISTED_WITHIN_S, checkpoints_in

# More than so many places are not tried: on Flink each is a start that the engine refuses.
MOST_GUESSED = 10
# Looking behind more runs without a checkpoint is of no use.
RUNS = 20
_NUMBERED = re.compile(r"(.*)/chk-(\d+)/?")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unseen:
    """The newest first. `silent`: where they could not be looked for, as the storage did not answer."""

    states: list[State]
    silent: list[StorageSilent]


def unseen_checkpoints(job: Job) -> Unseen:
    """Of the run that the last known checkpoint is of, and of those that followed it. Storage that does not answer is
    storage that cannot be read."""
    unseen = Unseen([], [])
    if job.restore_from == RestoreFrom.SAVEPOINT:
        return unseen
    searches = _searches(job)
    patience = Patience(LISTED_WITHIN_S)
    for search in searches:
        try:
            found = search.found(patience)
        except StorageSilent as silent:
            log.warning("%s.", silent)
            unseen.silent.append(silent)
            found = None
        unseen.states.extend(search.guessed() if found is None else found)
    return unseen


def found_checkpoints(job: Job, patience: Patience) -> list[State]:
    """Of those only the ones that were found where they lie, whatever the job's automation goes on from: what a person
    may choose. StorageSilent."""
    return [state for search in _searches(job) for state in search.found(patience) or ()]


def checkpoint_directory(job: Job, engine_job_id: str) -> str:
    """Where an engine would keep the checkpoints of a start under this id, going by the job's runs; "" where those do
    not tell."""
    for run in job.runs.order_by("-number")[:RUNS]:
        if (seen := _last_seen(run)) is not None:
            return _beside(seen, run, engine_job_id)
    return ""


@dataclass(frozen=True)
class _Search:
    """In what `run` left. `seen`: the last checkpoint that was seen, of `known`: this run or an earlier one."""

    run: Run
    ended_at: datetime
    known: Run
    seen: State

    def guessed(self) -> list[State]:
        # Of one that FAILED, the engine itself tells its last ones.
        if self.run != self.known or self.run.state != RunState.LOST:
            return []
        places = following(self.seen, self.ended_at, _interval(self.run))
        if self.run.job.cluster.engine == Engine.SPARK:
            return places
        return [replace(place, follows=self.seen.taken_at) for place in places]

    def found(self, patience: Patience) -> list[State] | None:
        """None where that cannot be told from here. StorageSilent."""
        directory, run = _directory(self.run, self.known, self.seen), self.run
        lying = checkpoints_in(directory, patience) if directory else None
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
    """And its checkpoints outlive it."""
    return run.state in DEAD and retains(RunState(run.state), run.checkpoint_config)


def following(seen: State, lost_at: datetime, interval: timedelta) -> list[State]:
    """The places of the checkpoints that the run had the time for after `seen`, whether they are there or not."""
    place = _NUMBERED.fullmatch(seen.path)
    if place is None or not interval:
        return []
    count = min(MOST_GUESSED, math.ceil((lost_at - seen.taken_at) / interval))
    numbered = ((int(place[2]) + number, seen.taken_at + interval * number) for number in range(count, 0, -1))
    return [State(f"{place[1]}/chk-{number}", at, False, seen.run_number, number) for number, at in numbered]


def _last_seen(run: Run) -> State | None:
    """It may be discarded since, for the sake of one that nobody saw."""
    rows = Checkpoint.objects.filter(run=run, status=CheckpointStatus.COMPLETED, is_savepoint=False)
    row = rows.exclude(external_path="").order_by("-checkpoint_id").first()
    return None if row is None else State(row.external_path, row.triggered_at, False, run.number, row.checkpoint_id)


def _directory(run: Run, known: Run, seen: State) -> str:
    """Where its checkpoints lie: a directory for each run, named by its id; "" when it does not look like that."""
    place = _NUMBERED.fullmatch(seen.path)
    if place is not None and run == known:
        return place[1]
    return _beside(seen, known, run.engine_job_id)


def _beside(seen: State, known: Run, engine_job_id: str) -> str:
    place = _NUMBERED.fullmatch(seen.path)
    base, _, name = place[1].rpartition("/") if place else ("", "", "")
    return f"{base}/{engine_job_id}" if name == known.engine_job_id else ""


def _interval(run: Run) -> timedelta:
    """Zero when it is not known, or the job takes checkpoints only when it is told to."""
    interval = run.checkpoint_config.get("interval")
    return timedelta(milliseconds=interval) if isinstance(interval, int) and interval > 0 else timedelta()
