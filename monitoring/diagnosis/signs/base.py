"""The base class of signs, and the rules and labels that several signs use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from statistics import median
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import CheckpointFailureReason, reason_of
from monitoring.diagnosis.diagnosis_facts import CheckpointFacts, DiagnosisFacts
from monitoring.diagnosis.finding import Evidence, Finding
from monitoring.history.expectations import Basis
from monitoring.reasons.reason import Reason, ReasonCode

ENOUGH = 5  # minimum number of completed checkpoints for medians
USUAL_WITHIN = 2  # a value is usual within this number of spreads around the median
FLINK = "https://nightlies.apache.org/flink/flink-docs-stable/docs/"
SPARK = "https://spark.apache.org/docs/latest/streaming/"

# Flink's options with another name before 1.20.
_OLDER = {
    "execution.checkpointing.incremental": "state.backend.incremental",
    "execution.checkpointing.num-retained": "state.checkpoints.num-retained",
    "execution.state-recovery.from-local": "state.backend.local-recovery",
}
RENAMED_IN = (1, 20)


class Label(ReasonCode):
    """The labels of numbers that several signs use."""

    LASTED = "diagnosis.lasted", _("Lasted")
    PENDING = "diagnosis.pending", _("Pending for")
    ACKNOWLEDGED = "diagnosis.acknowledged", _("Acknowledged")
    INTERVAL = "diagnosis.interval", _("Interval")
    TIMEOUT = "diagnosis.timeout", _("Timeout")
    WRITTEN = "diagnosis.written", _("Written")
    FULL_SIZE = "diagnosis.full-size", _("Full size")


class Figure(ReasonCode):
    """The formats of numbers with their units."""

    MILLISECONDS = "diagnosis.milliseconds", "{length:milliseconds}"
    LENGTH = "diagnosis.length", "{length:length}"
    SIZE = "diagnosis.size", "{size:bytes}"
    TIME = "diagnosis.time", "{at:second}"


class Sign(ABC):
    """One possible problem. The modules of this package list signs in `SIGNS`. No I/O, no clock, no exceptions."""

    name: ClassVar[str]
    title: ClassVar[Reason]
    of_checkpoint: ClassVar[bool] = True  # False: the sign checks the job's configuration

    @abstractmethod
    def find(self, facts: DiagnosisFacts) -> Finding | None: ...


def has_normal(facts: DiagnosisFacts) -> bool:
    return facts.normal.count >= ENOUGH


def has_expired(checkpoint: CheckpointFacts) -> bool:
    return checkpoint.has_failed and reason_of(checkpoint.failure) is CheckpointFailureReason.EXPIRED


def is_slow(facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> bool:
    """Return whether a checkpoint took at least twice as long as usual, and a second longer.

    Without a usual duration, and for a savepoint, which writes everything, the limit is half of the timeout. An
    expired checkpoint is always slow. A checkpoint that failed for another reason is not.
    """
    if checkpoint.has_failed:
        return has_expired(checkpoint)
    if checkpoint.lasted is None:
        return False
    usual = facts.normal.duration
    if is_usual_now(facts, checkpoint.lasted) and not checkpoint.is_savepoint:
        return False
    if has_normal(facts) and usual is not None and not checkpoint.is_savepoint:
        return checkpoint.lasted >= max(2 * usual, usual + 1000)
    timeout = facts.settings.timeout
    return timeout is not None and checkpoint.lasted >= timeout / 2


def is_usual_now(facts: DiagnosisFacts, lasted: float) -> bool:
    """Return whether `lasted` is usual for this hour of the week, for example because of a nightly load."""
    expected = facts.usual.get("duration")
    return (
        expected is not None
        and expected.basis.code is Basis.HOUR_OF_THE_WEEK
        and expected.deviations(lasted) < USUAL_WITHIN
    )


def milliseconds(value: float | None) -> Reason | str:
    return "" if value is None else Figure.MILLISECONDS(length=value)


def size(value: float | None) -> Reason | str:
    return "" if value is None else Figure.SIZE(size=value)


def lasted(facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
    if checkpoint.lasted is None:
        return ()
    label = Label.PENDING() if checkpoint.is_pending else Label.LASTED()
    usual = milliseconds(facts.normal.duration) if has_normal(facts) else ""
    return (Evidence(label, milliseconds(checkpoint.lasted), usual),)


def known(values: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return (subtask, value) for the known values."""
    return [(index, value) for index, value in enumerate(values) if value is not None]


def middle(values: Sequence[float]) -> float:
    return float(median(values)) if values else 0.0


def key_of(facts: DiagnosisFacts, key: str) -> str:
    """Return the key's name in the Flink version of the job."""
    old = facts.engine == "flink" and facts.version and facts.version[:2] < RENAMED_IN
    return _OLDER.get(key, key) if old else key


def nice(value: float) -> str:
    """Return a duration as text for a setting, rounded up to 1, 2, 5, 10, 15, 30 s or min, or whole hours."""
    seconds = max(value / 1000, 1)
    for step in (1, 2, 5, 10, 15, 30):
        if seconds <= step:
            return f"{step} s"
    for step in (1, 2, 5, 10, 15, 30):
        if seconds <= 60 * step:
            return f"{step} min"
    return f"{int(-(-seconds // 3600))} h"
