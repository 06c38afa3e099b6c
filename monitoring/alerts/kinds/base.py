"""The base class of rule kinds. A kind has a name, a unit, settings, texts for people, and a value at every moment.

A module of this package lists its kinds in `KINDS` and defines the reason codes of their texts. A kind computes from
facts alone: no I/O, no clock, no row objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, ClassVar

from django.utils.translation import gettext

from monitoring.alerts.rule_facts import Facts
from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import Reason, ReasonCode
from monitoring.units import ENGLISH, Translated, bytes_text, duration_text, length_text


class Unit(Enum):
    """The unit of a threshold. Thresholds are stored as whole numbers of the unit."""

    COUNT = "count"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    BYTES = "bytes"
    PERCENT = "percent"

    def text(self, value: float, translated: Translated = gettext) -> str:
        match self:
            case Unit.COUNT:
                return f"{value:g}"
            case Unit.SECONDS:
                return length_text(value, translated)
            case Unit.MILLISECONDS:
                return duration_text(value, translated)
            case Unit.BYTES:
                return bytes_text(value, translated)
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
    BUDGETS = "budgets"
    OUTAGES = "outages"
    OTHER_CLUSTERS = "strangers"
    NOT_POLLED = "not asked"
    PLATFORM_PROBLEMS = "platform problems"


@dataclass(frozen=True)
class Number:
    """A whole number that a person may set, with its unit and its range.

    If `default` is None, the field may stay empty, and `empty` explains what that means.
    """

    label: str
    unit: Unit
    default: int | None
    least: int
    most: int
    hint: str = ""
    empty: str = ""

    @property
    def allowed(self) -> str:
        return f"from {self.unit.text(self.least, ENGLISH)} to {self.unit.text(self.most, ENGLISH)}"


@dataclass(frozen=True)
class Day:
    """A date that a person may set."""

    label: str
    hint: str = ""


@dataclass(frozen=True)
class Terms:
    """The numbers of one rule with the kind's defaults filled in. None: the kind derives the number or has none."""

    threshold: int | None
    window_s: int | None
    parameters: Mapping[str, Any]

    @property
    def window(self) -> timedelta:
        """Return the window. Use it only for kinds whose window has a default."""
        return timedelta(seconds=self.window_s or 0)


@dataclass(frozen=True)
class Finding:
    """The text for people, and the numbers and rows on which it is based."""

    reason: Reason
    evidence: dict[str, Any]


class Kind(ABC):
    name: ClassVar[str]
    title: ClassVar[str]  # the kind's name in lists of rules
    group: ClassVar[str]  # the heading above the kind in the list of kinds
    source: ClassVar[Source]
    subject: ClassVar[Subject] = Subject.JOB
    unit: ClassVar[Unit] = Unit.COUNT
    threshold: ClassVar[Number | None] = None
    window: ClassVar[Number | None] = None
    parameters: ClassVar[Mapping[str, Number | Day]] = {}
    check_every_s: ClassVar[int] = 60
    # The rule counts events; when a person resolves the incident, earlier events no longer count.
    counts: ClassVar[bool] = False
    by_absence: ClassVar[bool] = False  # the rule finds something missing, which proves nothing during an outage
    reach: ClassVar[timedelta] = timedelta()  # how far back the first evaluation of a new rule reads rows

    @abstractmethod
    def explain(self, terms: Terms) -> Reason:
        """Return the rule in one sentence, as the form shows it."""

    @abstractmethod
    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        """Return every moment in (since, until] at which the rule may become met or unmet. Extra moments do no harm."""

    @abstractmethod
    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        """Return the value to compare with the limit, in the kind's unit. None: unknown, so the rule is not met."""

    @abstractmethod
    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding: ...

    def limit(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return terms.threshold

    def lookback(self, terms: Terms) -> timedelta:
        """Return how long before a moment an event may still affect the value."""
        return terms.window if self.window else timedelta()

    def gathered_by(self, terms: Terms) -> object:
        """Return a key. Rules of the kind with equal keys share their facts."""
        return None

    def fill(self, threshold: int | None, window_s: int | None, parameters: Mapping[str, Any]) -> Terms:
        """Return the terms of a rule with these numbers, and with the kind's defaults for those that are not set."""
        return Terms(
            threshold if threshold is not None or not self.threshold else self.threshold.default,
            window_s if window_s is not None or not self.window else self.window.default,
            {
                name: parameters.get(name, each.default if isinstance(each, Number) else None)
                for name, each in self.parameters.items()
            },
        )


class Counted(ReasonCode):
    """A number of things, as a part of a sentence."""

    CHECKPOINTS = (
        "alerts.checkpoints",
        ngettext("{count:g} checkpoint", "{count:g} checkpoints", "count"),
        "alerts.one-checkpoint",
    )
    SAVEPOINTS = (
        "alerts.savepoints",
        ngettext("{count:g} savepoint", "{count:g} savepoints", "count"),
        "alerts.one-savepoint",
    )
    TIMES = "alerts.times", ngettext("{count:g} time", "{count:g} times", "count"), "alerts.one-time"


def checkpoints(count: float) -> Reason:
    return Counted.CHECKPOINTS(count=count)


def savepoints(count: float) -> Reason:
    return Counted.SAVEPOINTS(count=count)


def times(count: float) -> Reason:
    return Counted.TIMES(count=count)
