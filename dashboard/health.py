"""Judge the health of a job from stored facts, by pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple, TypeGuard

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from monitoring.models import AttemptState, Cluster, Discovery, Job, RestartAttempt, Run, RunState, Severity
from monitoring.units import age_text, span_text

PERIODIC_DISABLED_MS = 2**62  # without periodic checkpoints, Flink reports the interval 2^63 - 1


class Level(Enum):
    """Levels of health, ordered by urgency. The page shows `word`, and a colour only in addition."""

    FAILING = (gettext_noop("failing"), 0)
    OVERDUE = (gettext_noop("overdue"), 1)
    DEGRADED = (gettext_noop("degraded"), 2)
    UNKNOWN = (gettext_noop("unknown"), 3)
    HEALTHY = (gettext_noop("healthy"), 4)
    ENDED = (gettext_noop("ended"), 5)

    def __init__(self, word: str, urgency: int) -> None:
        self.word = word
        self.urgency = urgency


class Freshness(Enum):
    """The age of the last completed checkpoint in relation to the job's checkpoint interval."""

    FRESH = ("fresh", gettext_noop("within one interval"))
    DUE = ("due", gettext_noop("1–2 intervals"))
    LATE = ("late", gettext_noop("2–5 intervals: late"))
    OVERDUE = ("overdue", gettext_noop("over 5 intervals: overdue"))
    NONE = ("none", gettext_noop("no checkpoint yet"))
    UNKNOWN = ("unknown", gettext_noop("unknown"))
    ENDED = ("ended", gettext_noop("ended"))

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


class JobSigns(NamedTuple):
    """The stored values about a job that determine its level and its place in a list.

    Times are Unix times in seconds. Lists read these values for every job by one statement (dashboard/queries/ranking).
    """

    pk: int
    name: str
    cluster_id: int
    labels: str = "{}"  # the job's own labels as JSON
    state: str | None = None  # the status of the current run, or None without a run
    is_missing: bool = False  # whether the engine's responses lack the run
    started_at: float | None = None
    interval_ms: float | None = None  # the checkpoint interval, as the engine reported it
    completed_at: float | None = None
    duration_ms: int | None = None  # of the last completed checkpoint
    state_size: int | None = None
    has_incident: bool = False
    is_critical: bool = False  # whether an unresolved incident is critical
    failed_restart: bool = False  # whether an unresolved incident is about a failed restart
    restarts: bool = False  # whether a restart is in progress


@dataclass(frozen=True)
class JobFacts:
    """The stored facts about one job."""

    job: Job
    cluster: Cluster
    run: Run | None
    last_completed_at: datetime | None = None
    last_completed_id: int | None = None
    last_duration_ms: int | None = None
    state_size: int | None = None
    last_failed_at: datetime | None = None
    last_failure: str = ""
    incidents: int = 0
    worst_severity: str = ""
    incident_sentence: str = ""
    failed_restart: str = ""  # the sentence of an open incident about a failed restart, or ""
    attempt: RestartAttempt | None = None

    @property
    def pk(self) -> int:
        return self.job.pk

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def missing_since(self) -> datetime | None:
        """Return the time since which the engine's responses lack the run."""
        return self.run.missing_since if self.run else None

    @property
    def interval(self) -> timedelta | None:
        """Return the checkpoint interval, or None if it is unknown or the job takes no periodic checkpoints."""
        interval_ms = self._interval_ms
        return timedelta(milliseconds=interval_ms) if _is_periodic(interval_ms) else None

    @property
    def _interval_ms(self) -> float | None:
        reported = self.run.checkpoint_config.get("interval") if self.run else None
        if not isinstance(reported, int | float) or isinstance(reported, bool):
            return None
        return float(reported)

    @property
    def seen_at(self) -> datetime | None:
        """Return the time at which the engine last reported the status of the run."""
        return self.run.seen_at(self.cluster.last_answer_at) if self.run else None

    @property
    def signs(self) -> JobSigns:
        run = self.run
        return JobSigns(
            pk=self.pk,
            name=self.name,
            cluster_id=self.cluster.pk,
            state=run.state if run else None,
            is_missing=self.missing_since is not None,
            started_at=run.started_at.timestamp() if run else None,
            interval_ms=self._interval_ms,
            completed_at=self.last_completed_at.timestamp() if self.last_completed_at else None,
            duration_ms=self.last_duration_ms,
            state_size=self.state_size,
            has_incident=self.incidents > 0,
            is_critical=self.worst_severity == Severity.CRITICAL,
            failed_restart=bool(self.failed_restart),
            restarts=self.attempt is not None,
        )


Explanation = Callable[[JobFacts, datetime], str]


class Assessment(NamedTuple):
    """The level of a job, and what explains it.

    `intervals` is the wait for the next completed checkpoint, in checkpoint intervals, or None if none is due.
    `lateness` is the same wait in relation to the longest wait at which the job is not late: it is late above 1.
    """

    level: Level
    freshness: Freshness
    state_word: str  # Flink's name of the run's status, or "unknown"
    explain: Explanation
    intervals: float | None = None
    lateness: float = 0.0


class Health(NamedTuple):
    """The health of a job: its assessment with a sentence in the reader's language."""

    level: Level
    freshness: Freshness
    state_word: str
    sentence: str  # a sentence about the problem, or "" without a problem
    intervals: float | None = None
    lateness: float = 0.0


def judge(facts: JobFacts, now: datetime) -> Health:
    return judge_with_cluster(facts, why_unknown(facts.cluster, now), now)


def judge_with_cluster(facts: JobFacts, unknown_reason: str, now: datetime) -> Health:
    """Judge a job. `unknown_reason` is the result of `why_unknown`, computed once for all jobs of a cluster."""
    found = assess(
        facts.signs, now.timestamp(), is_unknown=bool(unknown_reason), only_watched=facts.cluster.only_watched
    )
    sentence = unknown_reason or found.explain(facts, now)
    return Health(found.level, found.freshness, found.state_word, sentence, found.intervals, found.lateness)


def assess(signs: JobSigns, now: float, *, is_unknown: bool, only_watched: bool) -> Assessment:
    """Assess a job. It renders no text, so that it takes about a microsecond.

    `is_unknown`: `why_unknown` has a reason for the job's cluster. `only_watched` is the property of the cluster.
    """
    state = signs.state
    if state is None:
        return _NOT_SEEN
    is_terminal = state in _TERMINAL
    if is_unknown or (signs.is_missing and not signs.restarts and not is_terminal):
        return _MISSING
    freshness, intervals, lateness = (Freshness.ENDED, None, 0.0) if is_terminal else _freshness(signs, now)
    if only_watched and state == RunState.RECONCILING and not signs.has_incident:
        return Assessment(Level.UNKNOWN, freshness, "unknown", _why_quiet)
    level, explain = _level(signs, state, freshness)
    return Assessment(level, freshness, state, explain, intervals, lateness)


def urgency(signs: JobSigns, found: Assessment | Health) -> tuple[int, bool, float, float, str, int]:
    """Return a key that sorts jobs by urgency, the most urgent first.

    The key is the level, then whether a critical incident is open, then how far the next checkpoint is overdue in
    relation to the job's own limit, then the time since which no checkpoint has completed. Jobs without a late
    checkpoint keep the order of their names, so that they do not move whenever a checkpoint completes.
    """
    is_late = found.lateness > 1
    waits = is_late or (found.level is Level.FAILING and found.freshness is Freshness.ENDED)
    since = (signs.completed_at or signs.started_at) if waits else None
    return (
        found.level.urgency,
        not signs.is_critical,
        -found.lateness if is_late else 0.0,
        since or float("inf"),
        signs.name.lower(),
        signs.pk,
    )


def why_unknown(cluster: Cluster, now: datetime) -> str:
    """Return the reason why the stored facts about the cluster's jobs are not current, or "" if they are."""
    if not cluster.enabled:
        return _("Waymark does not monitor the cluster %(name)s.") % {"name": cluster.name}
    if cluster.has_ended:
        return ""
    if cluster.unreachable_since is not None:
        if cluster.stranger:
            return _(
                "Another cluster answers at the address of %(name)s. Waymark restarts no job there until you confirm "
                "the identity of the cluster."
            ) % {"name": cluster.name}
        since = age_text(now - cluster.unreachable_since)
        return _("%(name)s has not answered for %(since)s. Waymark restarts no job there until it answers.") % {
            "name": cluster.name,
            "since": since,
        }
    if cluster.last_answer_at is not None and now - cluster.last_answer_at > _max_response_age(cluster):
        asked = age_text(now - cluster.last_answer_at)
        return _("Not polled for %(asked)s. Check with manage.py status that the worker and beat are running.") % {
            "asked": asked
        }
    return ""


def _max_response_age(cluster: Cluster) -> timedelta:
    """Return the age of the last response after which the polling itself must have stopped."""
    return max(timedelta(minutes=1), timedelta(seconds=10 * cluster.poll_interval_s))


def _level(signs: JobSigns, state: str, freshness: Freshness) -> tuple[Level, Explanation]:
    is_running = state == RunState.RUNNING
    if not is_running or signs.restarts:
        if signs.restarts:
            return Level.FAILING, _why_restarting
        if state in (RunState.FINISHED, RunState.CANCELED):
            return (Level.FAILING, _why_not_restarted) if signs.failed_restart else (Level.ENDED, _why_ended)
        if state == RunState.LOST:
            return Level.FAILING, _why_lost
        if state in (RunState.FAILED, RunState.FAILING, RunState.RESTARTING):
            return Level.FAILING, _why_failed
    is_overdue = freshness is Freshness.OVERDUE and is_running
    if signs.has_incident:
        lesser = Level.OVERDUE if is_overdue else Level.DEGRADED
        return Level.FAILING if signs.is_critical else lesser, _why_alerted
    if not is_running:
        return Level.DEGRADED, _why_not_running
    if is_overdue or freshness is Freshness.LATE:
        return Level.OVERDUE if is_overdue else Level.DEGRADED, _why_late
    return Level.HEALTHY, _no_problem


def _freshness(signs: JobSigns, now: float) -> tuple[Freshness, float | None, float]:
    """Return the freshness of a live run, and its wait for the next completed checkpoint.

    The wait is in intervals, and then in relation to the longest wait of a job that is not late. Without an interval,
    it is None and 0.
    """
    completed, started, interval = signs.completed_at, signs.started_at or 0.0, signs.interval_ms
    in_time = Freshness.FRESH if completed else Freshness.NONE
    if not _is_periodic(interval):
        return in_time, None, 0.0
    # The first checkpoint of a new run is due one interval after its start, however old that of the last run is.
    since = completed if completed and completed > started else started
    intervals = (now - since) * 1000 / interval if now > since else 0.0
    # Allow for the duration of the last checkpoint: the next one completes that long after its trigger.
    allowance = (signs.duration_ms or 0) / interval
    lateness = intervals / (2 + allowance)
    if intervals <= 1 + allowance:
        return in_time, intervals, lateness
    if lateness <= 1:
        return Freshness.DUE, intervals, lateness
    return Freshness.LATE if intervals <= 5 + allowance else Freshness.OVERDUE, intervals, lateness


def _is_periodic(interval_ms: float | None) -> TypeGuard[float]:
    return interval_ms is not None and 0 < interval_ms <= PERIODIC_DISABLED_MS


# --- the sentences, each for one answer of the rule above ------------------------------------------------------------


def _why_not_seen(_facts: JobFacts, _now: datetime) -> str:
    return _("No run of this job has been seen yet.")


def _why_missing(facts: JobFacts, now: datetime) -> str:
    since = age_text(max(now - (facts.missing_since or now), timedelta()))
    return _("The engine has not reported this job for %(since)s. If this continues, the job counts as LOST.") % {
        "since": since
    }


def _why_quiet(facts: JobFacts, now: datetime) -> str:
    if facts.cluster.discovery == Discovery.AGENT:
        return _("The program has not reported for more than 2 min. It has ended, hangs, or does not reach Waymark.")
    if facts.cluster.discovery == Discovery.EVENT_LOG:
        return _("The event log has not grown for more than 2 min. It does not show whether the query runs.")
    if facts.last_completed_at is None:
        return _("The query has not committed a batch yet. Its files do not show whether it runs.")
    return _("No batch for %(since)s. The files do not show whether the query runs or is stopped.") % {
        "since": age_text(now - facts.last_completed_at)
    }


def _why_restarting(facts: JobFacts, _now: datetime) -> str:
    attempt = facts.attempt
    if attempt is None:
        return ""
    label = _(AttemptState(attempt.state).label).lower()
    return _("Restart %(epoch)s: %(state)s.") % {"epoch": attempt.epoch, "state": label}


def _why_not_restarted(facts: JobFacts, _now: datetime) -> str:
    return facts.failed_restart


def _why_ended(facts: JobFacts, _now: datetime) -> str:
    return _("Finished.") if _state(facts) == RunState.FINISHED else _("Canceled.")


def _why_lost(_facts: JobFacts, _now: datetime) -> str:
    return _("The engine no longer knows this job.")


def _why_failed(facts: JobFacts, _now: datetime) -> str:
    cause = facts.run.exception.strip().partition("\n")[0] if facts.run else ""
    return cause or _("The job is %(state)s.") % {"state": _state(facts)}


def _why_alerted(facts: JobFacts, _now: datetime) -> str:
    return facts.incident_sentence


def _why_not_running(facts: JobFacts, _now: datetime) -> str:
    starting = _state(facts) in (RunState.INITIALIZING, RunState.CREATED)
    text = _("The job is starting: %(state)s.") if starting else _("The job is not running: %(state)s.")
    return text % {"state": _state(facts)}


def _why_late(facts: JobFacts, now: datetime) -> str:
    interval = facts.interval or timedelta()
    expected = span_text(interval.total_seconds())
    if facts.last_completed_at is None:
        return _("No checkpoint has completed yet (every %(interval)s expected).") % {"interval": expected}
    since = age_text(now - facts.last_completed_at)
    return _("No checkpoint for %(since)s (every %(interval)s expected).") % {"since": since, "interval": expected}


def _no_problem(_facts: JobFacts, _now: datetime) -> str:
    return ""


def _state(facts: JobFacts) -> str:
    return facts.run.state if facts.run else ""


_TERMINAL = frozenset(state.value for state in RunState if state.terminal)
_NOT_SEEN = Assessment(Level.UNKNOWN, Freshness.UNKNOWN, "unknown", _why_not_seen)
_MISSING = Assessment(Level.UNKNOWN, Freshness.UNKNOWN, "unknown", _why_missing)
