"""How a job is, judged from the stored facts: a pure function, so that the page, the count and the test agree."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from dashboard.units import age_text, length_text, span_text
from monitoring.models import AttemptState, Cluster, Job, RestartAttempt, Run, RunState, Severity

PERIODIC_DISABLED_MS = 2**62  # Flink says 2^63 - 1 when no periodic checkpoint is configured


class Level(Enum):
    """Ordered by urgency. `word` is what the page says; the colour is only its echo."""

    FAILING = (gettext_noop("failing"), 0)
    DEGRADED = (gettext_noop("degraded"), 1)
    UNKNOWN = (gettext_noop("unknown"), 2)
    HEALTHY = (gettext_noop("healthy"), 3)
    ENDED = (gettext_noop("ended"), 4)

    def __init__(self, word: str, urgency: int) -> None:
        self.word = word
        self.urgency = urgency


class Freshness(Enum):
    """The age of the last completed checkpoint against the job's own interval."""

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
    """What is stored about one job right now."""

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
    left_down: str = ""  # what the open incident says that a restart left the job down; "" when there is none
    attempt: RestartAttempt | None = None

    # What a health is judged from, beside the fields.
    @property
    def pk(self) -> int:
        return self.job.pk

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def state(self) -> str | None:
        """The run's; None without one."""
        return self.run.state if self.run else None

    @property
    def exception(self) -> str:
        return self.run.exception if self.run else ""

    @property
    def started_at(self) -> datetime | None:
        return self.run.started_at if self.run else None

    @property
    def missing_since(self) -> datetime | None:
        """The engine has answered without the run since then."""
        return self.run.missing_since if self.run else None

    @property
    def configured_interval(self) -> object:
        """Milliseconds, as the engine told them."""
        return self.run.checkpoint_config.get("interval") if self.run else None

    @property
    def interval(self) -> timedelta | None:
        """The job's own checkpoint interval; None when it takes none by itself or has not said."""
        raw = self.configured_interval
        if not isinstance(raw, int | float) or raw <= 0 or raw > PERIODIC_DISABLED_MS:
            return None
        return timedelta(milliseconds=raw)

    @property
    def seen_at(self) -> datetime | None:
        """When the engine last said that the run is in its state."""
        return self.run.seen_at(self.cluster.last_answer_at) if self.run else None


class Health(NamedTuple):
    """`intervals`: waited for the next completed checkpoint, in the job's own ones; None where nothing is due."""

    level: Level
    freshness: Freshness
    state_word: str  # Flink's word for the run's state, or "unknown"
    sentence: str  # what is the matter, in a sentence; empty when nothing is
    intervals: float | None = None


def judge(facts: JobFacts, now: datetime) -> Health:
    return judge_within(facts, why_unknown(facts.cluster, now), now)


def judge_within(facts: JobFacts, not_known: str, now: datetime) -> Health:
    """`not_known`: what `why_unknown` says of the job's cluster, which whoever judges many jobs asks once."""
    if not_known or facts.state is None:
        why = not_known or _("No run of this job has been seen yet.")
        return Health(Level.UNKNOWN, Freshness.UNKNOWN, "unknown", why)
    state = RunState(facts.state)
    if facts.missing_since is not None and facts.attempt is None and not state.terminal:
        return Health(Level.UNKNOWN, Freshness.UNKNOWN, "unknown", _why_missing(now - facts.missing_since))
    freshness, intervals = Freshness.ENDED, None
    if not state.terminal:
        freshness, intervals = _freshness(facts, now)
    level, sentence = _level(facts, state, freshness, now)
    return Health(level, freshness, facts.state, sentence, intervals)


def _why_missing(lasts: timedelta) -> str:
    since = age_text(max(lasts, timedelta()))
    return _("The engine has not reported this job for %(since)s. If this continues, the job counts as LOST.") % {
        "since": since
    }


def _level(facts: JobFacts, state: RunState, freshness: Freshness, now: datetime) -> tuple[Level, str]:
    if facts.attempt is not None:
        return Level.FAILING, _("Restart %(epoch)s: %(state)s.") % {
            "epoch": facts.attempt.epoch,
            "state": _(AttemptState(facts.attempt.state).label).lower(),
        }
    if state in (RunState.FINISHED, RunState.CANCELED):
        if facts.left_down:
            return Level.FAILING, facts.left_down
        return Level.ENDED, _("Finished.") if state is RunState.FINISHED else _("Canceled.")
    if state is RunState.LOST:
        return Level.FAILING, _("The engine no longer knows this job.")
    if state in (RunState.FAILED, RunState.FAILING, RunState.RESTARTING):
        return Level.FAILING, facts.exception.strip().partition("\n")[0] or _("The job is %(state)s.") % {
            "state": state.value
        }
    return _level_of_live(facts, freshness, state, now)


def why_unknown(cluster: Cluster, now: datetime) -> str:
    """Why nothing is known of the cluster's jobs; empty when what is stored of them can be relied on."""
    if not cluster.enabled:
        return _("Waymark does not monitor the cluster %(name)s.") % {"name": cluster.name}
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
    if cluster.last_answer_at is not None and now - cluster.last_answer_at > _longest_unasked(cluster):
        asked = age_text(now - cluster.last_answer_at)
        return _("Not polled for %(asked)s. Check with manage.py status that the worker and beat are running.") % {
            "asked": asked
        }
    return ""


def _longest_unasked(cluster: Cluster) -> timedelta:
    """When the last answer is older, the watching itself must have stopped."""
    return max(timedelta(minutes=1), timedelta(seconds=10 * cluster.poll_interval_s))


def _level_of_live(facts: JobFacts, freshness: Freshness, state: RunState, now: datetime) -> tuple[Level, str]:
    if facts.incidents:
        critical = facts.worst_severity == Severity.CRITICAL
        return Level.FAILING if critical else Level.DEGRADED, facts.incident_sentence
    if state is not RunState.RUNNING:
        starting = state in (RunState.INITIALIZING, RunState.CREATED)
        said = _("The job is starting: %(state)s.") if starting else _("The job is not running: %(state)s.")
        return Level.DEGRADED, said % {"state": state.value}
    if freshness in (Freshness.LATE, Freshness.OVERDUE):
        return Level.DEGRADED, _late(facts, now)
    return Level.HEALTHY, ""


def _late(facts: JobFacts, now: datetime) -> str:
    """Return the sentence about a job whose next checkpoint is overdue by its own interval."""
    interval = facts.interval or timedelta()
    expected = length_text(span_text(interval.total_seconds()))
    if facts.last_completed_at is None:
        return _("No checkpoint has completed yet (every %(interval)s expected).") % {"interval": expected}
    since = age_text(now - facts.last_completed_at)
    return _("No checkpoint for %(since)s (every %(interval)s expected).") % {"since": since, "interval": expected}


def _freshness(facts: JobFacts, now: datetime) -> tuple[Freshness, float | None]:
    """Of a live run that something is known of, and how many of its own intervals the job has waited for the next
    completed checkpoint; None without an interval."""
    completed, interval = facts.last_completed_at, facts.interval
    in_time = Freshness.FRESH if completed else Freshness.NONE
    if interval is None:
        return in_time, None
    # A new run owes its first checkpoint from its own start, however old the last run's is.
    reference = max(moment for moment in (completed, facts.started_at) if moment)
    intervals = max(0.0, (now - reference) / interval)
    # What the last one took is not lateness: the next completes that much after its trigger.
    allowance = timedelta(milliseconds=facts.last_duration_ms or 0) / interval
    if intervals <= 1 + allowance:
        return in_time, intervals
    if intervals <= 2 + allowance:
        return Freshness.DUE, intervals
    return Freshness.LATE if intervals <= 5 + allowance else Freshness.OVERDUE, intervals
