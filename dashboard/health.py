"""Judge the health of a job from stored facts, by pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

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

    # The following values also affect the health.
    @property
    def pk(self) -> int:
        return self.job.pk

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def state(self) -> str | None:
        """Return the status of the run, or None without a run."""
        return self.run.state if self.run else None

    @property
    def exception(self) -> str:
        return self.run.exception if self.run else ""

    @property
    def started_at(self) -> datetime | None:
        return self.run.started_at if self.run else None

    @property
    def missing_since(self) -> datetime | None:
        """Return the time since which the engine's responses lack the run."""
        return self.run.missing_since if self.run else None

    @property
    def configured_interval(self) -> object:
        """Return the checkpoint interval in milliseconds, as the engine reported it."""
        return self.run.checkpoint_config.get("interval") if self.run else None

    @property
    def interval(self) -> timedelta | None:
        """Return the checkpoint interval, or None if it is unknown or the job takes no periodic checkpoints."""
        raw = self.configured_interval
        if not isinstance(raw, int | float) or raw <= 0 or raw > PERIODIC_DISABLED_MS:
            return None
        return timedelta(milliseconds=raw)

    @property
    def seen_at(self) -> datetime | None:
        """Return the time at which the engine last reported the status of the run."""
        return self.run.seen_at(self.cluster.last_answer_at) if self.run else None


class Health(NamedTuple):
    """The health of a job.

    `intervals` is the wait for the next completed checkpoint, in checkpoint intervals, or None if none is due.
    `lateness` is the same wait in relation to the longest wait at which the job is not late: it is late above 1.
    """

    level: Level
    freshness: Freshness
    state_word: str  # Flink's name of the run's status, or "unknown"
    sentence: str  # a sentence about the problem, or "" without a problem
    intervals: float | None = None
    lateness: float = 0.0


def judge(facts: JobFacts, now: datetime) -> Health:
    return judge_with_cluster(facts, why_unknown(facts.cluster, now), now)


def judge_with_cluster(facts: JobFacts, unknown_reason: str, now: datetime) -> Health:
    """Judge a job. `unknown_reason` is the result of `why_unknown`, computed once for all jobs of a cluster."""
    if unknown_reason or facts.state is None:
        why = unknown_reason or _("No run of this job has been seen yet.")
        return Health(Level.UNKNOWN, Freshness.UNKNOWN, "unknown", why)
    state = RunState(facts.state)
    if facts.missing_since is not None and facts.attempt is None and not state.terminal:
        return Health(Level.UNKNOWN, Freshness.UNKNOWN, "unknown", _why_missing(now - facts.missing_since))
    freshness, intervals, lateness = Freshness.ENDED, None, 0.0
    if not state.terminal:
        freshness, intervals, lateness = _freshness(facts, now)
    if facts.cluster.only_watched and state is RunState.RECONCILING and not facts.incidents:
        return Health(Level.UNKNOWN, freshness, "unknown", _why_quiet(facts, now))
    level, sentence = _level(facts, state, freshness, now)
    return Health(level, freshness, facts.state, sentence, intervals, lateness)


def urgency(facts: JobFacts, health: Health) -> tuple[int, bool, float, float, str, int]:
    """Return a key that sorts jobs by urgency, the most urgent first.

    The key is the level, then whether a critical incident is open, then how far the next checkpoint is overdue in
    relation to the job's own limit, then the time since which no checkpoint has completed. Jobs without a late
    checkpoint keep the order of their names, so that they do not move whenever a checkpoint completes.
    """
    critical = facts.worst_severity == Severity.CRITICAL
    is_late = health.lateness > 1
    waits = is_late or (health.level is Level.FAILING and health.freshness is Freshness.ENDED)
    since = (facts.last_completed_at or facts.started_at) if waits else None
    return (
        health.level.urgency,
        not critical,
        -health.lateness if is_late else 0.0,
        since.timestamp() if since else float("inf"),
        facts.name.lower(),
        facts.pk,
    )


def _why_missing(lasts: timedelta) -> str:
    since = age_text(max(lasts, timedelta()))
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


def _level(facts: JobFacts, state: RunState, freshness: Freshness, now: datetime) -> tuple[Level, str]:
    if facts.attempt is not None:
        return Level.FAILING, _("Restart %(epoch)s: %(state)s.") % {
            "epoch": facts.attempt.epoch,
            "state": _(AttemptState(facts.attempt.state).label).lower(),
        }
    if state in (RunState.FINISHED, RunState.CANCELED):
        if facts.failed_restart:
            return Level.FAILING, facts.failed_restart
        return Level.ENDED, _("Finished.") if state is RunState.FINISHED else _("Canceled.")
    if state is RunState.LOST:
        return Level.FAILING, _("The engine no longer knows this job.")
    if state in (RunState.FAILED, RunState.FAILING, RunState.RESTARTING):
        return Level.FAILING, facts.exception.strip().partition("\n")[0] or _("The job is %(state)s.") % {
            "state": state.value
        }
    return _level_of_live(facts, freshness, state, now)


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


def _level_of_live(facts: JobFacts, freshness: Freshness, state: RunState, now: datetime) -> tuple[Level, str]:
    is_overdue = freshness is Freshness.OVERDUE and state is RunState.RUNNING
    if facts.incidents:
        critical = facts.worst_severity == Severity.CRITICAL
        lesser = Level.OVERDUE if is_overdue else Level.DEGRADED
        return Level.FAILING if critical else lesser, facts.incident_sentence
    if state is not RunState.RUNNING:
        starting = state in (RunState.INITIALIZING, RunState.CREATED)
        text = _("The job is starting: %(state)s.") if starting else _("The job is not running: %(state)s.")
        return Level.DEGRADED, text % {"state": state.value}
    if freshness in (Freshness.LATE, Freshness.OVERDUE):
        return Level.OVERDUE if is_overdue else Level.DEGRADED, _late_sentence(facts, now)
    return Level.HEALTHY, ""


def _late_sentence(facts: JobFacts, now: datetime) -> str:
    """Return the sentence about a job whose next checkpoint is overdue."""
    interval = facts.interval or timedelta()
    expected = span_text(interval.total_seconds())
    if facts.last_completed_at is None:
        return _("No checkpoint has completed yet (every %(interval)s expected).") % {"interval": expected}
    since = age_text(now - facts.last_completed_at)
    return _("No checkpoint for %(since)s (every %(interval)s expected).") % {"since": since, "interval": expected}


def _freshness(facts: JobFacts, now: datetime) -> tuple[Freshness, float | None, float]:
    """Return the freshness of a live run, and its wait for the next completed checkpoint.

    The wait is in intervals, and then in relation to the longest wait of a job that is not late. Without an interval,
    it is None and 0.
    """
    completed, interval = facts.last_completed_at, facts.interval
    in_time = Freshness.FRESH if completed else Freshness.NONE
    if interval is None:
        return in_time, None, 0.0
    # The first checkpoint of a new run is due one interval after its start, however old that of the last run is.
    reference = max(moment for moment in (completed, facts.started_at) if moment)
    intervals = max(0.0, (now - reference) / interval)
    # Allow for the duration of the last checkpoint: the next one completes that long after its trigger.
    allowance = timedelta(milliseconds=facts.last_duration_ms or 0) / interval
    lateness = intervals / (2 + allowance)
    if intervals <= 1 + allowance:
        return in_time, intervals, lateness
    if lateness <= 1:
        return Freshness.DUE, intervals, lateness
    return Freshness.LATE if intervals <= 5 + allowance else Freshness.OVERDUE, intervals, lateness
