"""What a rule kind is: a name, a unit, what may be set, a sentence for people, and a value at every moment.

A module of this package lists its kinds in `KINDS`, and has the codes of what they say. A kind computes from facts
alone: no I/O, no clock, no row objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.rule_facts import Facts
from monitoring.durations import in_words
from monitoring.reasons.reason import Reason, ReasonCode
from monitoring.units import bytes_text, milliseconds_text


class Unit(Enum):
    """What a threshold is measured in; stored as a whole number of it."""

    COUNT = "count"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    BYTES = "bytes"
    PERCENT = "percent"

    def text(self, value: float) -> str:
        match self:
            case Unit.COUNT:
                return f"{value:g}"
            case Unit.SECONDS:
                return in_words(value)
            case Unit.MILLISECONDS:
                return milliseconds_text(value)
            case Unit.BYTES:
                return bytes_text(value)
            case Unit.PERCENT:
                return f"{value:.0f} %"


class Subject(Enum):
    """What a rule of the kind watches."""

    JOB = "job"
    CLUSTER = "cluster"
    WAYMARK = "Waymark"


class Source(Enum):
    """Which stored rows a kind is computed from: one gatherer each, see monitoring.alerts.gathering."""

    FAILURES = "failures"
    SETTLED = "settled"
    COMPLETIONS = "completions"
    METRIC = "metric"
    HOURLY_SIZE = "hourly size"
    SAVEPOINTS = "savepoints"
    FAILED_SAVEPOINTS = "failed savepoints"
    RUNS = "runs"
    RESTARTS = "restarts"
    SCHEDULED_RUNS = "scheduled runs"
    OUTAGES = "outages"
    STRANGERS = "strangers"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Number:
    """A whole number that a person may set: in which unit, and from where to where. `default` None: may be left empty,
    and then `empty` says what happens."""

    label: str
    unit: Unit
    default: int | None
    least: int
    most: int
    hint: str = ""
    empty: str = ""

    @property
    def allowed(self) -> str:
        return f"from {self.unit.text(self.least)} to {self.unit.text(self.most)}"


@dataclass(frozen=True)
class Day:
    """A date that a person may set."""

    label: str
    hint: str = ""


@dataclass(frozen=True)
class Terms:
    """The numbers of one rule, the kind's defaults filled in; None where the kind derives it or has none."""

    threshold: int | None
    window_s: int | None
    parameters: Mapping[str, Any]

    @property
    def window(self) -> timedelta:
        """Only for kinds whose window has a default."""
        return timedelta(seconds=self.window_s or 0)


@dataclass(frozen=True)
class Finding:
    """What people read, and the numbers and rows that it was decided on."""

    reason: Reason
    evidence: dict[str, Any]


class Kind(ABC):
    name: ClassVar[str]
    title: ClassVar[str]  # how a list of rules calls it
    group: ClassVar[str]  # its place in the list of kinds
    source: ClassVar[Source]
    subject: ClassVar[Subject] = Subject.JOB
    unit: ClassVar[Unit] = Unit.COUNT
    threshold: ClassVar[Number | None] = None
    window: ClassVar[Number | None] = None
    parameters: ClassVar[Mapping[str, Number | Day]] = {}
    check_every_s: ClassVar[int] = 60
    counts: ClassVar[bool] = False  # counts events: those that a person dealt with count no more
    by_absence: ClassVar[bool] = False  # finds something missing: proves nothing while the cluster does not answer
    reach: ClassVar[timedelta] = (
        timedelta()
    )  # how old the row may be by which a rule that never looked judges the present

    @abstractmethod
    def explain(self, terms: Terms) -> Reason:
        """Return the rule in one sentence, as the form shows it."""

    @abstractmethod
    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        """Every moment in (since, until] at which the rule may begin or cease to be met; more do no harm."""

    @abstractmethod
    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        """What is compared with the limit, in the kind's unit; None: nothing can be said, so it is not met."""

    @abstractmethod
    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding: ...

    def limit(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return terms.threshold

    def lookback(self, terms: Terms) -> timedelta:
        """How far before a moment its value may depend on events."""
        return terms.window if self.window else timedelta()

    def gathered_by(self, terms: Terms) -> object:
        """Rules of the kind with equal ones share their facts."""
        return None

    def fill(self, threshold: int | None, window_s: int | None, parameters: Mapping[str, Any]) -> Terms:
        """The terms of a rule with these numbers, the kind's own in place of those not set."""
        return Terms(
            threshold if threshold is not None or not self.threshold else self.threshold.default,
            window_s if window_s is not None or not self.window else self.window.default,
            {
                name: parameters.get(name, each.default if isinstance(each, Number) else None)
                for name, each in self.parameters.items()
            },
        )


class Counted(ReasonCode):
    """So many of something: a part of a sentence."""

    CHECKPOINT = "alerts.one-checkpoint", _("1 checkpoint")
    CHECKPOINTS = "alerts.checkpoints", _("{count:g} checkpoints")
    SAVEPOINT = "alerts.one-savepoint", _("1 savepoint")
    SAVEPOINTS = "alerts.savepoints", _("{count:g} savepoints")
    TIME = "alerts.one-time", _("1 time")
    TIMES = "alerts.times", _("{count:g} times")


def checkpoints(count: float) -> Reason:
    return Counted.CHECKPOINT() if count == 1 else Counted.CHECKPOINTS(count=count)


def savepoints(count: float) -> Reason:
    return Counted.SAVEPOINT() if count == 1 else Counted.SAVEPOINTS(count=count)


def times(count: float) -> Reason:
    return Counted.TIME() if count == 1 else Counted.TIMES(count=count)
