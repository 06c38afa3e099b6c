"""Decide what a cluster's answer, or a missing answer, proves about one job. Pure functions, without I/O.

There are four classes of evidence, and only the first three may lead to a restart:

1. The engine lists the job: `Alive` or `Terminal`. A terminal status may be revoked (FLINK-39704: after a leader change
   the same ID came back), so a terminal run that the engine lists as alive again *is* alive again.
2. The engine answers, does not list the job, and returns 404 for it: `Unknown`, conclusive only after the hold-down.
3. The engine does not answer, but another source proves the end: the platform of an application cluster, which ends
   with its job, Flink's History Server, or an accepted stop or cancellation. `Terminal` with the `ReportedEnd`.
4. The engine does not answer, or not to the request for the job (a job that is not recovered yet is in no list):
   `Unreachable`. It proves nothing and ends every hold-down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from monitoring.engine import errors
from monitoring.engine.answers import TERMINAL_STATES, JobOverview
from monitoring.engine.errors import ConnectionFailure
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

HOLD_DOWN = timedelta(seconds=30)
HOLD_DOWN_POLLS = 2
# A job manager that lists no job at all may have just started, before it recovers its jobs.
EMPTY_HOLD_DOWN = timedelta(seconds=90)
_NO_MANAGER = (
    *(ConnectionFailure.UNRESOLVED, ConnectionFailure.REFUSED, ConnectionFailure.NOT_CONNECTED),
    *(ConnectionFailure.TIMED_OUT, ConnectionFailure.CLOSED_BY_SERVER, ConnectionFailure.NO_HTTP),
)


@dataclass(frozen=True)
class Answered:
    """The jobs in the engine's list, by ID. `undenied`: why other jobs may still exist, by job ID."""

    jobs: Mapping[str, JobOverview]
    undenied: Mapping[str, Reason | str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportedEnd:
    """The end of a job, from another source than its engine.

    `state` is a terminal state of Flink, `at` the time of the end. `error` is what the source reports as wrong, or "".
    """

    state: str
    at: datetime
    why: Reason
    error: str = ""

    @property
    def exceptions(self) -> list[dict[str, str]]:
        """Return the error as Run.exceptions stores it."""
        entry = {"name": "", "message": self.error, "stacktrace": "", "at": self.at.isoformat(), "task": ""}
        return [entry] if self.error else []


@dataclass(frozen=True)
class NoAnswer:
    """No usable answer: refused, timed out, starting, or malformed. `ends`: ends of jobs from other sources, by ID.

    `is_silence`: there seems to be no job manager (`shows_no_manager`).
    """

    why: Reason | str
    ends: Mapping[str, ReportedEnd] = field(default_factory=dict)
    is_silence: bool = False


ClusterAnswer = Answered | NoAnswer


@dataclass(frozen=True)
class Missing:
    """The engine has answered without the job since `since`, in `polls` consecutive polls."""

    since: datetime
    polls: int


@dataclass(frozen=True)
class Alive:
    state: str


@dataclass(frozen=True)
class Terminal:
    state: str
    reported: ReportedEnd | None = None


@dataclass(frozen=True)
class Unknown:
    """The engine does not know the job. `lost`: the hold-down is over, so the job no longer exists."""

    missing: Missing
    lost: bool
    why: Reason


@dataclass(frozen=True)
class Unreachable:
    why: Reason | str


Evidence = Alive | Terminal | Unknown | Unreachable


def shows_no_manager(error: errors.EngineError) -> bool:
    """Return whether no job manager answers a request for the jobs, if the cluster may have ended.

    A server that does not trust Waymark, or that Waymark does not trust, may be one. So may any that fails for now.
    """
    match error:
        case errors.Unreachable(kind=kind):
            return kind in _NO_MANAGER
        case errors.NotReady(by_proxy=by_proxy):
            return by_proxy  # which has no server for the address. A job manager that starts explains its 503
        case errors.NotFound():
            return True  # every job manager has a list of jobs, but an ingress has no route to one that is gone
        case errors.Refused(status=410 | 502 | 504):
            return True  # a proxy has lost its server
        case _:
            return False


def evidence_of(job_id: str, answer: ClusterAnswer, missing: Missing | None, now: datetime) -> Evidence:
    """Return what `answer` proves about the job.

    `missing` counts earlier polls without the job. It is None if the last poll listed the job or had no answer.
    """
    if isinstance(answer, NoAnswer):
        end = answer.ends.get(job_id)
        return Unreachable(answer.why) if end is None else Terminal(end.state, end)
    job = answer.jobs.get(job_id)
    if job is not None:
        return Terminal(job.state) if job.state in TERMINAL_STATES else Alive(job.state)
    if job_id in answer.undenied:
        return Unreachable(answer.undenied[job_id])
    held = Missing(now, 1) if missing is None else Missing(missing.since, missing.polls + 1)
    return _unknown(held, now, empty=not answer.jobs)


def _unknown(held: Missing, now: datetime, *, empty: bool) -> Unknown:
    enough = EMPTY_HOLD_DOWN if empty else HOLD_DOWN
    lost = held.polls >= HOLD_DOWN_POLLS and now - held.since >= enough
    code = EngineReason.NO_JOB_KNOWN if empty else EngineReason.JOB_UNKNOWN
    seconds = round((now - held.since).total_seconds())
    return Unknown(held, lost, code(polls=held.polls, seconds=seconds))
