"""What a sign is, and what several of them weigh alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from statistics import median
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import CheckpointFailureReason, reason_of
from monitoring.diagnosis.finding import Evidence, Finding
from monitoring.diagnosis.scene import CheckpointFacts, Scene
from monitoring.history.expectations import Basis
from monitoring.reasons.reason import Reason, ReasonCode

ENOUGH = 5  # completed checkpoints from which on there is a normal
USUAL_WITHIN = 2  # spreads
FLINK = "https://nightlies.apache.org/flink/flink-docs-stable/docs/"
SPARK = "https://spark.apache.org/docs/latest/streaming/"

# The names of Flink's options before 1.20, where they differ.
_OLDER = {
    "execution.checkpointing.incremental": "state.backend.incremental",
    "execution.checkpointing.num-retained": "state.checkpoints.num-retained",
    "execution.state-recovery.from-local": "state.backend.local-recovery",
}
RENAMED_IN = (1, 20)


class Label(ReasonCode):
    """What a number is, for several signs."""

    LASTED = "diagnosis.lasted", _("Lasted")
    PENDING = "diagnosis.pending", _("Pending for")
    ACKNOWLEDGED = "diagnosis.acknowledged", _("Acknowledged")
    INTERVAL = "diagnosis.interval", _("Interval")
    TIMEOUT = "diagnosis.timeout", _("Time-out")
    WRITTEN = "diagnosis.written", _("Written")
    FULL_SIZE = "diagnosis.full-size", _("Full size")


class Figure(ReasonCode):
    """A number with its unit."""

    MILLISECONDS = "diagnosis.milliseconds", "{length:milliseconds}"
    LENGTH = "diagnosis.length", "{length:length}"
    SIZE = "diagnosis.size", "{size:bytes}"
    TIME = "diagnosis.time", "{at:second}"


class Sign(ABC):
    """One thing that may be wrong. A module of this package has them in `SIGNS`. No I/O, no clock, never an error."""

    name: ClassVar[str]
    title: ClassVar[Reason]
    of_checkpoint: ClassVar[bool] = True  # else of the job as it is configured

    @abstractmethod
    def find(self, scene: Scene) -> Finding | None: ...


def has_normal(scene: Scene) -> bool:
    return scene.normal.count >= ENOUGH


def has_expired(checkpoint: CheckpointFacts) -> bool:
    return checkpoint.has_failed and reason_of(checkpoint.failure) is CheckpointFailureReason.EXPIRED


def is_slow(scene: Scene, checkpoint: CheckpointFacts) -> bool:
    """Twice as long as usual and a second more; where nothing is usual (a savepoint writes everything), half of the
    time-out. One that expired is slow whatever it is compared with; one that failed otherwise is not."""
    if checkpoint.has_failed:
        return has_expired(checkpoint)
    if checkpoint.lasted is None:
        return False
    usual = scene.normal.duration
    if is_usual_now(scene, checkpoint.lasted) and not checkpoint.is_savepoint:
        return False
    if has_normal(scene) and usual is not None and not checkpoint.is_savepoint:
        return checkpoint.lasted >= max(2 * usual, usual + 1000)
    timeout = scene.settings.timeout
    return timeout is not None and checkpoint.lasted >= timeout / 2


def is_usual_now(scene: Scene, lasted: float) -> bool:
    """Every week at this hour they take as long: a nightly load, say."""
    expected = scene.usual.get("duration")
    return (
        expected is not None
        and expected.basis.code is Basis.HOUR_OF_THE_WEEK
        and expected.deviations(lasted) < USUAL_WITHIN
    )


def milliseconds(value: float | None) -> Reason | str:
    return "" if value is None else Figure.MILLISECONDS(length=value)


def size(value: float | None) -> Reason | str:
    return "" if value is None else Figure.SIZE(size=value)


def lasted(scene: Scene, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
    if checkpoint.lasted is None:
        return ()
    label = Label.PENDING() if checkpoint.is_pending else Label.LASTED()
    usual = milliseconds(scene.normal.duration) if has_normal(scene) else ""
    return (Evidence(label, milliseconds(checkpoint.lasted), usual),)


def known(values: Sequence[int | None]) -> list[tuple[int, int]]:
    """(subtask, value) of those that said it."""
    return [(index, value) for index, value in enumerate(values) if value is not None]


def middle(values: Sequence[float]) -> float:
    return float(median(values)) if values else 0.0


def key_of(scene: Scene, key: str) -> str:
    """The name that the job's Flink knows the key by."""
    old = scene.engine == "flink" and scene.version and scene.version[:2] < RENAMED_IN
    return _OLDER.get(key, key) if old else key


def nice(value: float) -> str:
    """A duration as configurations write it, rounded up to 1, 2, 5, 10, 15, 30 s or min, or whole hours."""
    seconds = max(value / 1000, 1)
    for step in (1, 2, 5, 10, 15, 30):
        if seconds <= step:
            return f"{step} s"
    for step in (1, 2, 5, 10, 15, 30):
        if seconds <= 60 * step:
            return f"{step} min"
    return f"{int(-(-seconds // 3600))} h"
