"""What a cluster's answer, or its silence, proves of one job. Pure: facts in, a value out.

Three classes, and only the first two may ever lead to a restart:

1. the engine names the job: `Alive` or `Terminal`. A terminal state may be taken back (FLINK-39704: after a leader
   change the same id came back), so a terminal run that is named alive again *is* alive again;
2. the engine answers, does not name the job and, asked for it, says that there is none: `Unknown`, conclusive only
   after the hold-down;
3. the engine does not answer, or not to the question for the job (one that it could not recover yet is in no list):
   `Unreachable`. It proves nothing, ends every hold-down and drops nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from monitoring.engine.answers import TERMINAL_STATES, JobOverview
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

HOLD_DOWN = timedelta(seconds=30)
HOLD_DOWN_POLLS = 2
# A job manager that names no job at all may have just started and not yet recovered those it has to.
EMPTY_HOLD_DOWN = timedelta(seconds=90)


@dataclass(frozen=True)
class Answered:
    """The jobs that the engine names, by id, at one moment. `undenied`: why others may still be there, by id."""

    jobs: Mapping[str, JobOverview]
    undenied: Mapping[str, Reason | str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoAnswer:
    """Refused, timed out, starting, or not understandable."""

    why: Reason | str


ClusterAnswer = Answered | NoAnswer


@dataclass(frozen=True)
class Missing:
    """The engine has answered without the job since then, in that many polls in a row."""

    since: datetime
    polls: int


@dataclass(frozen=True)
class Alive:
    state: str


@dataclass(frozen=True)
class Terminal:
    state: str


@dataclass(frozen=True)
class Unknown:
    """`lost`: the hold-down is over, the job is gone."""

    missing: Missing
    lost: bool
    why: Reason


@dataclass(frozen=True)
class Unreachable:
    why: Reason | str


Evidence = Alive | Terminal | Unknown | Unreachable


def evidence_of(job_id: str, answer: ClusterAnswer, missing: Missing | None, now: datetime) -> Evidence:
    """`missing`: what earlier polls held down, None when the last answer named the job or there was none."""
    if isinstance(answer, NoAnswer):
        return Unreachable(answer.why)
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
