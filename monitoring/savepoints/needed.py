"""Find the savepoints that jobs need: a job is starting from one, or a run was started from one.

The row of the savepoint's job is the lock. Decisions about a disposal, a pin or a start of any job from the savepoint
hold it. So a disposal and a start from the same savepoint cannot be decided at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q

from monitoring.models import Job, RestartAttempt, Run, RunState, Savepoint, SavepointState
from monitoring.models.recovery import ENDED
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.history import plain_path, spellings

# A launch whose run no poll has stored may still start the job: a launch command may have put it into a queue.
LAUNCH_PENDING = timedelta(hours=1)
# The run failed, so the job may be started again from the same snapshot as this run.
_DIED = (RunState.FAILED, RunState.LOST)
_LIVE = [state for state in RunState if not state.terminal]


class SavepointBeingDisposed(Exception):
    """Raised if the savepoint's files are removed or are being removed; `state` says which."""

    def __init__(self, savepoint: Savepoint) -> None:
        self.state = SavepointState(savepoint.state)
        super().__init__(f"{savepoint.path}: {self.state.label}")


@dataclass(frozen=True)
class Need:
    """Why a savepoint is needed: `run` was started from it.

    If `run` is None, `attempt` is starting a run from it.
    """

    job_id: int
    run: Run | None = None
    attempt: RestartAttempt | None = None

    def why(self, of_job: int) -> Reason:
        """Return the reason for readers of the job `of_job`. It names no other job, because they may not see it."""
        if self.job_id != of_job:
            return SavepointReason.NEEDED_BY_OTHER_RUN() if self.run else SavepointReason.NEEDED_BY_OTHER_START()
        if self.run:
            return SavepointReason.NEEDED_BY_RUN(number=self.run.number)
        return SavepointReason.NEEDED_BY_RESTART(epoch=self.attempt.epoch if self.attempt else "–")


def needs(paths: Iterable[str], now: datetime, *, ended: bool = False) -> dict[str, list[Need]]:
    """Return what needs the savepoints at `paths`, by plain path, for all jobs. Paths without a need are left out.

    `ended`: a job's last run counts even after an intended end, so that the job can be started again as it was.
    """
    spelled = [each for path in paths for each in spellings(path)]
    found: dict[str, list[Need]] = defaultdict(list)
    for run in Run.objects.filter(_needing(ended), restored_path__in=spelled).order_by("job_id", "number"):
        found[plain_path(run.restored_path)].append(Need(run.job_id, run=run))
    for need, path in _started(spelled, now, ended):
        if need not in found[plain_path(path)]:
            found[plain_path(path)].append(need)
    return dict(found)


def hold(path: str) -> None:
    """Prevent the disposal of savepoints at `path` ("": none) until the caller's transaction ends.

    In the same transaction, the caller must store the row that `needs` finds later. Raises SavepointBeingDisposed.
    """
    if not path:
        return
    rows = Savepoint.objects.filter(path__in=spellings(path))
    owners = Job.objects.filter(pk__in=rows.values("job")).order_by("pk")
    list(owners.select_for_update())
    going = rows.filter(state__in=(SavepointState.DISPOSING, SavepointState.DISPOSED)).first()
    if going is not None:
        raise SavepointBeingDisposed(going)


def _needing(ended: bool) -> Q:
    last = Q(job__current_run=F("pk"))
    return Q(state__in=_LIVE, superseded=False) | (last if ended else last & Q(state__in=_DIED))


def _started(spelled: Collection[str], now: datetime, ended: bool) -> list[tuple[Need, str]]:
    """Return the needs of restarts that are in progress, and of those whose run has no restored path yet."""
    attempts = RestartAttempt.objects.filter(restore_path__in=spelled)
    found = [(Need(each.job_id, attempt=each), each.restore_path) for each in attempts.exclude(state__in=ENDED)]
    launched = list(attempts.filter(state__in=ENDED, launch_sent_at__isnull=False))
    of_them = Run.objects.filter(engine_job_id__in=[each.engine_job_id for each in launched])
    known = set(of_them.values_list("job_id", "engine_job_id"))
    needing = {(run.job_id, run.engine_job_id): run for run in of_them.filter(_needing(ended))}
    for each in launched:
        key = each.job_id, each.engine_job_id
        if run := needing.get(key):
            found.append((Need(each.job_id, run=run), each.restore_path))
        elif key not in known and each.ended_at and now - each.ended_at < LAUNCH_PENDING:
            found.append((Need(each.job_id, attempt=each), each.restore_path))
    return found
