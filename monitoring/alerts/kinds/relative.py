"""Kinds that compare a figure of the last completed checkpoint with the job's own p95 of that figure.

The p95 covers the N whole UTC days before the day in question, so that each day has one p95. Live evaluation and
backtests use the same number, and a figure that grows during a day does not raise its own p95.

A rule may set a number of weeks. Then a checkpoint is compared with the same hour of the week in the weeks before. So a
load that comes every Monday at nine opens no incident. If fewer than ENOUGH weeks have data for that hour, the
checkpoint is compared with the days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Day, Finding, Number, Terms, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure
from monitoring.alerts.rule_facts import Facts
from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import Reason, ReasonCode

_DAYS = Number(_("Days"), Unit.COUNT, 7, 1, 90, _("The p95 is computed over this many whole UTC days before today."))
ENOUGH = 3  # weeks that must have data for an hour
_WEEKS = Number(
    _("Weeks of the same hour"),
    Unit.COUNT,
    None,
    ENOUGH,
    6,
    _(
        "Compares with the p95 of the same hour of the week over this many past weeks, if at least three "
        "of them have data."
    ),
    _("Empty: compares with the p95 over “Days”."),
)
_THRESHOLD = Number(_("Threshold"), Unit.PERCENT, 200, 101, 100_000, _("Percent of the p95: 200 is twice as much."))


class RelativeReason(ReasonCode):
    RULE = (
        "alerts.relative-rule",
        _(
            "Opens when the {figure} of the last completed checkpoint is {threshold:.0f} % or more of the job's own "
            "p95 {over}."
        ),
    )
    RULE_AT_LEAST = (
        "alerts.relative-rule-at-least",
        _(
            "Opens when the {figure} of the last completed checkpoint is {threshold:.0f} % or more of the "
            "job's own p95 {over}. A lower p95 counts as {least:milliseconds}."
        ),
    )
    DAYS_BEFORE = "alerts.days-before", ngettext("over the {days} day before", "over the {days} days before", "days")
    SAME_HOUR_BEFORE = (
        "alerts.same-hour-before",
        ngettext(
            "at that hour of the week in the {weeks} weeks before (if fewer than {enough} of them have data, "
            "over the {days} day before)",
            "at that hour of the week in the {weeks} weeks before (if fewer than {enough} of them have data, "
            "over the {days} days before)",
            "days",
        ),
    )
    FOUND = (
        "alerts.relative",
        _(
            "Checkpoint {checkpoint} of {subject} {measured}, {percent:.0f} % of its p95 over {over}, "
            "{p95:milliseconds} (threshold {threshold} %)."
        ),
    )
    FOUND_AT_LEAST = (
        "alerts.relative-at-least",
        _(
            "Checkpoint {checkpoint} of {subject} {measured}, {percent:.0f} % of its p95 over {over}, "
            "{p95:milliseconds}, which counts as {least:milliseconds} at least (threshold {threshold} %)."
        ),
    )
    DAYS = "alerts.days", ngettext("{days} day", "{days} days", "days")
    SAME_HOUR = "alerts.same-hour", _("this hour of the last {weeks} weeks")
    NO_P95 = "alerts.no-p95", _("{subject} has no p95 of its {figure} yet.")


class RelativeFigure(CheckpointFigure):
    """A kind of rule whose value is a percentage of the p95 of a figure of the job.

    `figure` is the name of the figure, and `measured` the text of its current value.
    """

    unit = Unit.PERCENT
    figure: ClassVar[ReasonCode]
    measured: ClassVar[ReasonCode]
    found: ClassVar[ReasonCode] = RelativeReason.FOUND
    threshold = _THRESHOLD
    parameters: ClassVar[Mapping[str, Number | Day]] = {"days": _DAYS, "weeks": _WEEKS}
    check_every_s = 300

    def explain(self, terms: Terms) -> Reason:
        said = {"figure": self.figure(), "threshold": terms.threshold or 0, "over": _over(terms)}
        least = _least_ms(terms)
        return RelativeReason.RULE_AT_LEAST(**said, least=least) if least else RelativeReason.RULE(**said)

    def gathered_by(self, terms: Terms) -> object:
        return terms.parameters["days"], weeks_of(terms)

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        yield from super().moments(facts, terms, since, until)
        midnight = datetime.combine(since.astimezone(UTC).date(), time(), UTC)
        while (midnight := midnight + timedelta(days=1)) <= until:
            yield midnight

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        last, usual = facts.last(at), self._usual(facts, terms, at)
        return 100 * last.value / usual if last and usual else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last, usual = facts.last(at), self._p95(facts, terms, at)
        value = self.value(facts, terms, at)
        if last is None or usual is None or value is None:
            nothing = RelativeReason.NO_P95(subject=subject, figure=self.figure())
            return Finding(nothing, {"threshold_percent": terms.threshold})
        p95, weeks = usual
        days, least_ms = terms.parameters["days"], _least_ms(terms)
        least = {"least_ms": terms.parameters["least_ms"]} if "least_ms" in self.parameters else {}
        said = {
            "checkpoint": last.number,
            "subject": subject,
            "measured": self.measured(value=last.value),
            "percent": value,
            "over": RelativeReason.SAME_HOUR(weeks=weeks) if weeks else RelativeReason.DAYS(days=days),
            "p95": p95,
            "threshold": terms.threshold,
        }
        return Finding(
            RelativeReason.FOUND_AT_LEAST(**said, least=least_ms) if least_ms else self.found(**said),
            {
                "value_percent": round(value, 1),
                "threshold_percent": terms.threshold,
                self.column: last.value,
                "p95": p95,
                **({"weeks": weeks} if weeks else {"days": days}),
                **least,
                "checkpoint_id": last.number,
                "last_row": last.row,
            },
        )

    def _usual(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        """Return the p95, at least `least_ms`, or None if it is unknown or zero."""
        usual = self._p95(facts, terms, at)
        return None if usual is None else max(usual[0], terms.parameters.get("least_ms") or 0) or None

    def _p95(self, facts: Facts, terms: Terms, at: datetime) -> tuple[float, int] | None:
        """Return the p95 and its number of weeks. If it covers the days before instead of weeks, the number is 0."""
        last, weeks = facts.last(at), weeks_of(terms)
        if weeks and last is not None:
            completed = last.at.astimezone(UTC)
            of_the_hour = dict(enumerate(facts.by_hour.get(completed.date(), ()))).get(completed.hour)
            if of_the_hour is not None:
                return of_the_hour, weeks
        of_days = facts.baseline.get(at.astimezone(UTC).date())
        return None if of_days is None else (of_days, 0)


class RelativeDuration(RelativeFigure):
    """A duration in percent of its p95.

    A p95 below `least_ms` counts as `least_ms`: so few milliseconds may double by chance.
    """

    parameters: ClassVar[Mapping[str, Number | Day]] = {
        "days": _DAYS,
        "weeks": _WEEKS,
        "least_ms": Number(
            _("At least"), Unit.MILLISECONDS, 1000, 0, 86_400_000, _("A lower p95 counts as this value, such as 1 s.")
        ),
    }


def weeks_of(terms: Terms) -> int:
    """Return the rule's weeks, or 0 if it has none. Rules of older versions lack the parameter."""
    return terms.parameters.get("weeks") or 0


def _least_ms(terms: Terms) -> int:
    return terms.parameters.get("least_ms") or 0


def _over(terms: Terms) -> Reason:
    weeks, days = weeks_of(terms), terms.parameters["days"]
    if not weeks:
        return RelativeReason.DAYS_BEFORE(days=days)
    return RelativeReason.SAME_HOUR_BEFORE(weeks=weeks, enough=ENOUGH, days=days)


class EndToEndDurationRelativeReason(ReasonCode):
    FIGURE = "alerts.end-to-end-duration-figure", _("end to end duration")
    MEASURED = "alerts.end-to-end-duration-measured", _("took {value:milliseconds} end to end")


class EndToEndDurationRelative(RelativeDuration):
    name = "end_to_end_duration_relative"
    title = _("End to end duration against the job's own p95")
    column = "end_to_end_duration"
    figure = EndToEndDurationRelativeReason.FIGURE
    measured = EndToEndDurationRelativeReason.MEASURED


class AlignmentRelativeReason(ReasonCode):
    FIGURE = "alerts.alignment-figure", _("longest alignment")
    MEASURED = "alerts.alignment-measured", _("had a subtask that aligned for {value:milliseconds}")


class AlignmentRelative(RelativeDuration):
    name = "alignment_relative"
    title = _("Alignment duration against the job's own p95")
    column = "alignment_max"
    figure = AlignmentRelativeReason.FIGURE
    measured = AlignmentRelativeReason.MEASURED


class StartDelayRelativeReason(ReasonCode):
    FIGURE = "alerts.start-delay-figure", _("longest start delay")
    MEASURED = (
        "alerts.start-delay-measured",
        _("had a subtask whose first barrier arrived after {value:milliseconds}"),
    )


class StartDelayRelative(RelativeDuration):
    name = "start_delay_relative"
    title = _("Start delay against the job's own p95")
    column = "start_delay_max"
    figure = StartDelayRelativeReason.FIGURE
    measured = StartDelayRelativeReason.MEASURED


class StateSizeRelativeReason(ReasonCode):
    FIGURE = "alerts.state-size-figure", _("state size")
    MEASURED = "alerts.state-size-measured", _("holds a state of {value:bytes}")
    FOUND = (
        "alerts.state-size-relative",
        _(
            "Checkpoint {checkpoint} of {subject} {measured}, {percent:.0f} % of its p95 over {over}, {p95:bytes} "
            "(threshold {threshold} %)."
        ),
    )


class StateSizeRelative(RelativeFigure):
    name = "state_size_relative"
    title = _("State size against the job's own p95")
    group = _("State")
    column = "state_size"
    figure = StateSizeRelativeReason.FIGURE
    measured = StateSizeRelativeReason.MEASURED
    found = StateSizeRelativeReason.FOUND


KINDS = (EndToEndDurationRelative(), AlignmentRelative(), StartDelayRelative(), StateSizeRelative())
