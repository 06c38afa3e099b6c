"""Advices about risky settings of a job.

They use only known values: a setting that the engine does not report counts as good.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.diagnosis.diagnosis_facts import DiagnosisFacts
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding
from monitoring.diagnosis.signs import timeout_too_short
from monitoring.diagnosis.signs.base import FLINK, Label, Sign, has_normal, key_of, milliseconds, nice, size
from monitoring.diagnosis.signs.phases import LARGE_STATE, incremental, writes_everything
from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import Reason, ReasonCode

BIG = 1024**3
CHECKPOINTING = f"{FLINK}dev/datastream/fault-tolerance/checkpointing/"
CHECKPOINTS = f"{FLINK}ops/state/checkpoints/"
FAILURES = f"{FLINK}ops/state/task_failure_recovery/"


class ConfigurationReason(ReasonCode):
    INTERVAL_TOO_SHORT = "diagnosis.interval-too-short", _("Interval shorter than a checkpoint")
    NO_PAUSE = (
        "diagnosis.no-pause",
        _(
            "Checkpoints take {usual:milliseconds} and are due every {interval:milliseconds}: they follow "
            "each other without a pause, which leaves the job little time for processing."
        ),
    )
    SET_MIN_PAUSE = "diagnosis.set-min-pause", _("leaves time for processing between two checkpoints")
    MEDIAN_DURATION = "diagnosis.median-duration", _("Median duration")
    MIN_PAUSE = "diagnosis.min-pause", _("Minimum pause")

    TIMEOUT_NEAR = "diagnosis.timeout-near", _("Checkpoints come close to the timeout")
    NEXT_EXPIRES = (
        "diagnosis.next-expires",
        _(
            "One in twenty checkpoints takes {p95:milliseconds} or longer, and the timeout is "
            "{timeout:milliseconds}: the next slow checkpoint expires."
        ),
    )

    NO_PERIODIC_CHECKPOINTS = "diagnosis.no-periodic-checkpoints", _("No periodic checkpoints")
    BEGINS_AGAIN = (
        "diagnosis.begins-again",
        _(
            "The job takes no periodic checkpoints: after a failure it has no state, or only the state of "
            "its last savepoint."
        ),
    )
    SET_INTERVAL = "diagnosis.set-interval", _("how much is processed again after a failure")

    ONE_RETAINED = "diagnosis.one-retained", _("Only one checkpoint is retained")
    NOTHING_OLDER = (
        "diagnosis.nothing-older",
        _("Only the newest checkpoint is retained: if its files are damaged, there is no older one to restore."),
    )
    RETAIN_MORE = "diagnosis.retain-more", _("one or two older checkpoints to fall back on")

    NOT_KEPT = "diagnosis.not-kept", _("Checkpoints are deleted with the job")
    DELETED_WITH_JOB = (
        "diagnosis.deleted-with-job",
        _(
            "When the job fails for good or is cancelled, its checkpoints are deleted: it can then be "
            "restarted only from a savepoint."
        ),
    )
    KEEP_CHECKPOINTS = "diagnosis.keep-checkpoints", _("a restart restores the newest state")

    NO_SAVEPOINT_SCHEDULE = "diagnosis.no-savepoint-schedule", _("No savepoint schedule")
    ONLY_CHECKPOINTS = (
        "diagnosis.only-checkpoints",
        _(
            "No savepoints are taken on a schedule: an upgrade or a move to another cluster can start only "
            "from the engine's own checkpoints."
        ),
    )
    ON_CONFIGURATION_TAB = "diagnosis.on-configuration-tab", _("on this job's Configuration tab")

    NO_TOLERANCE = "diagnosis.no-tolerance", _("A failed checkpoint restarts the job")
    MAY_RESTART = (
        "diagnosis.may-restart",
        ngettext(
            "No failed checkpoint is tolerated, and {failed} failed within a week: each may restart the job "
            "({restarted} restart), which costs more than a missing checkpoint.",
            "No failed checkpoint is tolerated, and {failed} failed within a week: each may restart the job "
            "({restarted} restarts), which costs more than a missing checkpoint.",
            "restarted",
        ),
        "diagnosis.may-restart-once",
    )
    TOLERATE_FAILURES = "diagnosis.tolerate-failures", _("the next checkpoint may succeed")
    FAILED_LATELY = "diagnosis.failed-lately", _("Failed within 7 d")
    RESTARTED_LATELY = "diagnosis.restarted-lately", _("Restarts within 7 d")

    NO_RESTART = "diagnosis.no-restart", _("Nothing restarts the job")
    FIRST_FAILURE_ENDS = (
        "diagnosis.first-failure-ends",
        _("The first failure ends the job: its engine does not restart it, and neither does Waymark."),
    )
    ENABLE_RESTARTS = "diagnosis.enable-restarts", _("the job recovers from short failures by itself")

    BIG_STATE_FULL = "diagnosis.big-state-full", _("Big state written in full")
    WRITES_ALL = (
        "diagnosis.writes-all",
        _("Each checkpoint writes {written:bytes} of {held:bytes} state, {share:.0f} %: it is not incremental."),
    )

    NO_LOCAL_RECOVERY = "diagnosis.no-local-recovery", _("Big state without local recovery")
    READS_ALL = (
        "diagnosis.reads-all",
        _("A restart reads all {held:bytes} of state from the checkpoint storage: local recovery is off."),
    )
    RECOVER_LOCALLY = "diagnosis.recover-locally", _("state that a machine still has locally is not read again")

    AT_LEAST_ONCE = "diagnosis.at-least-once", _("At least once")
    COUNTS_TWICE = (
        "diagnosis.counts-twice",
        _(
            "After a restart, some input may count twice in the state: the job takes its checkpoints at "
            "least once, not exactly once."
        ),
    )
    EXACTLY_ONCE = "diagnosis.exactly-once", _("if its results must be exact")


class SettingSign(Sign):
    """A sign that gives an advice. `weight` is its importance among advices."""

    of_checkpoint = False
    weight = 0.5
    at: ClassVar[str] = ""  # the engine's name of the setting in /checkpoints/config

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        sentence = self.sentence(facts) if facts.checkpoint is None else None
        if sentence is None:
            return None
        advice, evidence = self.advise(facts), self.evidence(facts)
        return Finding(self.name, self.title, sentence, evidence, advice, Confidence.CERTAIN, self.weight, self.at)

    @abstractmethod
    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        """Return what is risky, None if no problem is known."""

    @abstractmethod
    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]: ...

    def evidence(self, facts: DiagnosisFacts) -> Sequence[Evidence]:
        return ()


class IntervalTooShort(SettingSign):
    name = "interval_too_short"
    at = "min_pause"
    title = ConfigurationReason.INTERVAL_TOO_SHORT()
    weight = 0.9

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        interval, usual = facts.settings.interval, facts.normal.duration
        if not interval or usual is None or not has_normal(facts) or usual < interval:
            return None
        if (facts.settings.min_pause or 0) >= interval / 2:
            return None
        return ConfigurationReason.NO_PAUSE(usual=usual, interval=interval)

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = ConfigurationReason.SET_MIN_PAUSE()
        return (Advice("execution.checkpointing.min-pause", nice(facts.normal.duration or 0), why, CHECKPOINTING),)

    def evidence(self, facts: DiagnosisFacts) -> Sequence[Evidence]:
        return (
            Evidence(ConfigurationReason.MEDIAN_DURATION(), milliseconds(facts.normal.duration)),
            Evidence(Label.INTERVAL(), milliseconds(facts.settings.interval)),
            Evidence(ConfigurationReason.MIN_PAUSE(), milliseconds(facts.settings.min_pause or 0)),
        )


class TimeoutNear(SettingSign):
    name = "timeout_near"
    at = "timeout"
    title = ConfigurationReason.TIMEOUT_NEAR()
    weight = 0.8

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        p95, timeout = timeout_too_short.near_timeout(facts), facts.settings.timeout
        if p95 is None or timeout is None:
            return None
        return ConfigurationReason.NEXT_EXPIRES(p95=p95, timeout=timeout)

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        return timeout_too_short.advice(facts.normal.duration_p95 or 0)


class NoPeriodicCheckpoints(SettingSign):
    name = "no_periodic_checkpoints"
    at = "interval"
    title = ConfigurationReason.NO_PERIODIC_CHECKPOINTS()
    weight = 1.0

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        if not facts.runs or facts.settings.interval is not None or not facts.settings.mode:
            return None
        return ConfigurationReason.BEGINS_AGAIN()

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = ConfigurationReason.SET_INTERVAL()
        return (Advice("execution.checkpointing.interval", "1 min", why, CHECKPOINTING),)


class OneRetained(SettingSign):
    name = "one_retained"
    at = "num_retained"
    title = ConfigurationReason.ONE_RETAINED()

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        if facts.settings.retained != 1 or facts.settings.interval is None:
            return None
        return ConfigurationReason.NOTHING_OLDER()

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = ConfigurationReason.RETAIN_MORE()
        return (Advice(key_of(facts, "execution.checkpointing.num-retained"), "3", why, CHECKPOINTS),)


class NotKept(SettingSign):
    name = "not_kept"
    at = "externalization"
    title = ConfigurationReason.NOT_KEPT()

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        if facts.settings.retained_after_end is not False or facts.settings.interval is None:
            return None
        return ConfigurationReason.DELETED_WITH_JOB()

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        key = "execution.checkpointing.externalized-checkpoint-retention"
        why = ConfigurationReason.KEEP_CHECKPOINTS()
        return (Advice(key, "RETAIN_ON_CANCELLATION", why, CHECKPOINTS),)


class NoSavepoints(SettingSign):
    name = "no_savepoint_schedule"
    title = ConfigurationReason.NO_SAVEPOINT_SCHEDULE()
    weight = 0.3

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        if facts.has_savepoint_schedule or not facts.manages_savepoints or not facts.runs:
            return None
        return ConfigurationReason.ONLY_CHECKPOINTS()

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = ConfigurationReason.ON_CONFIGURATION_TAB()
        return (Advice("Waymark: savepoint schedule", "every 1 d", why),)


class NoTolerance(SettingSign):
    name = "no_tolerance"
    at = "tolerable_failed_checkpoints"
    title = ConfigurationReason.NO_TOLERANCE()
    weight = 0.7

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        if facts.settings.tolerable != 0 or facts.recent_failures < 1 or facts.recent_restarts < 1:
            return None
        return ConfigurationReason.MAY_RESTART(failed=facts.recent_failures, restarted=facts.recent_restarts)

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = ConfigurationReason.TOLERATE_FAILURES()
        return (Advice("execution.checkpointing.tolerable-failed-checkpoints", "3", why, CHECKPOINTING),)

    def evidence(self, facts: DiagnosisFacts) -> Sequence[Evidence]:
        return (
            Evidence(ConfigurationReason.FAILED_LATELY(), str(facts.recent_failures)),
            Evidence(ConfigurationReason.RESTARTED_LATELY(), str(facts.recent_restarts)),
        )


class NoRestart(SettingSign):
    name = "no_restart"
    title = ConfigurationReason.NO_RESTART()
    weight = 0.8

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        strategy = facts.settings.restart_strategy.strip().lower()
        off = strategy in ("none", "disable", "off") or "restart deactivated" in strategy
        if not off or facts.manages_restarts:
            return None
        return ConfigurationReason.FIRST_FAILURE_ENDS()

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        here = ConfigurationReason.ON_CONFIGURATION_TAB()
        why = ConfigurationReason.ENABLE_RESTARTS()
        return (
            Advice("restart-strategy.type", "exponential-delay", why, FAILURES),
            Advice("Waymark: restart it when it is dead", "on", here),
        )


class BigStateFull(SettingSign):
    name = "big_state_full"
    at = "state_backend"
    title = ConfigurationReason.BIG_STATE_FULL()
    weight = 0.6

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        held, written = facts.normal.state_size, facts.normal.checkpointed_size
        if not has_normal(facts) or held is None or held < BIG or not writes_everything(written, held):
            return None
        return ConfigurationReason.WRITES_ALL(written=written, held=held, share=100 * (written or 0) / held)

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        return incremental(facts)

    def evidence(self, facts: DiagnosisFacts) -> Sequence[Evidence]:
        return (
            Evidence(Label.WRITTEN(), size(facts.normal.checkpointed_size)),
            Evidence(Label.FULL_SIZE(), size(facts.normal.state_size)),
        )


class NoLocalRecovery(SettingSign):
    name = "no_local_recovery"
    title = ConfigurationReason.NO_LOCAL_RECOVERY()
    weight = 0.2
    _KEYS = ("execution.state-recovery.from-local", "state.backend.local-recovery")

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        held = facts.normal.state_size
        if held is None or held < BIG or facts.settings.says(*self._KEYS) != "false":
            return None
        return ConfigurationReason.READS_ALL(held=held)

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = ConfigurationReason.RECOVER_LOCALLY()
        return (Advice(key_of(facts, self._KEYS[0]), "true", why, LARGE_STATE),)


class AtLeastOnce(SettingSign):
    name = "at_least_once"
    at = "mode"
    title = ConfigurationReason.AT_LEAST_ONCE()
    weight = 0.1

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        if facts.settings.mode.lower() != "at_least_once":
            return None
        return ConfigurationReason.COUNTS_TWICE()

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = ConfigurationReason.EXACTLY_ONCE()
        return (Advice("execution.checkpointing.mode", "EXACTLY_ONCE", why, CHECKPOINTING),)


SIGNS = (
    IntervalTooShort(),
    TimeoutNear(),
    NoPeriodicCheckpoints(),
    OneRetained(),
    NotKept(),
    NoSavepoints(),
    NoTolerance(),
    NoRestart(),
    BigStateFull(),
    NoLocalRecovery(),
    AtLeastOnce(),
)
