"""Compare with the job's history: slower than usual at this hour, and the trends of durations and state size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from django.utils.translation import gettext_noop as _

from monitoring.diagnosis.diagnosis_facts import DiagnosisFacts
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding
from monitoring.diagnosis.signs import timeout_too_short
from monitoring.diagnosis.signs.base import Label, Sign, milliseconds, size
from monitoring.diagnosis.signs.configuration import CHECKPOINTING, SettingSign
from monitoring.diagnosis.signs.phases import incremental
from monitoring.history.expectations import Basis
from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import Reason, ReasonCode

FAR = 4  # a duration is far above the expected one from this number of spreads on
MORE = 1.5  # a duration is long from this multiple of the expected one on
SOON = timedelta(days=90)
DOUBLES_IN = 60  # days
MUCH = 100 * 1024**2


class HistoryReason(ReasonCode):
    SLOW_FOR_THIS_HOUR = "diagnosis.slow-for-this-hour", _("Slower than usual at this hour")
    TOOK_LONGER = (
        "diagnosis.took-longer",
        _(
            "Checkpoint {number} took {took:milliseconds}; checkpoints of this job usually take "
            "{expected:milliseconds} ({basis})."
        ),
    )
    TAKES_LONGER = (
        "diagnosis.takes-longer",
        _(
            "Checkpoint {number} has taken {took:milliseconds} so far; checkpoints of this job usually take "
            "{expected:milliseconds} ({basis})."
        ),
    )
    AT_THIS_HOUR_OF_THE_WEEK = "diagnosis.at-this-hour-of-the-week", _("at this hour of the week")
    AT_THIS_HOUR_OF_THE_DAY = "diagnosis.at-this-hour-of-the-day", _("at this hour of the day")
    IN_ALL_HOURS = "diagnosis.in-all-hours", _("in all hours")
    USUAL_SPREAD = "diagnosis.usual-spread", _("Usual spread")
    HOURS = "diagnosis.hours", _("Hours evaluated")

    TIMEOUT_FORESEEN = "diagnosis.timeout-foreseen", _("Checkpoints will reach their timeout")
    TAKES_LONGER_DAILY = (
        "diagnosis.takes-longer-daily",
        _(
            "The p95 of the checkpoint duration grows by {growth:milliseconds} a day. If that continues, "
            "checkpoints reach the timeout of {timeout:milliseconds} about {day:day}."
        ),
    )
    RAISE_TIMEOUT = "diagnosis.raise-timeout", _("before that day, or find the cause of the growth")
    DAYS = "diagnosis.days", _("Days evaluated")
    STATE_PER_DAY = "diagnosis.state-per-day", _("State growth per day")

    STATE_DOUBLES = "diagnosis.state-doubles", _("The state doubles within two months")
    DOUBLES_WITHIN = (
        "diagnosis.doubles-within",
        ngettext(
            "The state grows by {growth:bytes} a day: from {held:bytes} it doubles within {days:.0f} day.",
            "The state grows by {growth:bytes} a day: from {held:bytes} it doubles within {days:.0f} days.",
            "days",
        ),
    )


_AGAINST: Mapping[ReasonCode, ReasonCode] = {
    Basis.HOUR_OF_THE_WEEK: HistoryReason.AT_THIS_HOUR_OF_THE_WEEK,
    Basis.HOUR_OF_THE_DAY: HistoryReason.AT_THIS_HOUR_OF_THE_DAY,
    Basis.ALL_HOURS: HistoryReason.IN_ALL_HOURS,
}


class SlowForThisHour(Sign):
    name = "slow_for_this_hour"
    title = HistoryReason.SLOW_FOR_THIS_HOUR()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        checkpoint, expected = facts.checkpoint, facts.usual.get("duration")
        if checkpoint is None or expected is None or checkpoint.is_savepoint or checkpoint.has_failed:
            return None
        took = checkpoint.lasted
        if took is None or took < max(MORE * expected.expected, expected.expected + 1000):
            return None
        if expected.deviations(took) < FAR:
            return None
        code = HistoryReason.TAKES_LONGER if checkpoint.is_pending else HistoryReason.TOOK_LONGER
        return Finding(
            self.name,
            self.title,
            code(number=checkpoint.number, took=took, expected=expected.expected, basis=expected.basis),
            (
                Evidence(
                    Label.LASTED(),
                    milliseconds(took),
                    milliseconds(expected.expected),
                    _AGAINST[expected.basis.code](),
                ),
                Evidence(HistoryReason.USUAL_SPREAD(), milliseconds(expected.spread)),
                Evidence(HistoryReason.HOURS(), str(expected.hours)),
            ),
            (),
            Confidence.LIKELY,
        )


class TimeoutForeseen(SettingSign):
    name = "timeout_foreseen"
    at = "timeout"
    title = HistoryReason.TIMEOUT_FORESEEN()
    weight = 0.75

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        forecast, timeout = facts.forecast, facts.settings.timeout
        if forecast is None or forecast.duration_per_day is None or forecast.exceeds_timeout_on is None:
            return None
        if timeout is None or not facts.runs:
            return None
        if forecast.exceeds_timeout_on > facts.now + SOON or timeout_too_short.near_timeout(facts) is not None:
            return None
        growth, day = forecast.duration_per_day, forecast.exceeds_timeout_on
        return HistoryReason.TAKES_LONGER_DAILY(growth=growth, timeout=timeout, day=day)

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        why = HistoryReason.RAISE_TIMEOUT()
        return (Advice("execution.checkpointing.timeout", "", why, CHECKPOINTING),)

    def evidence(self, facts: DiagnosisFacts) -> Sequence[Evidence]:
        forecast = facts.forecast
        grown = (
            size(forecast.state_per_day) if forecast and forecast.state_per_day and forecast.state_per_day > 0 else ""
        )
        days = (Evidence(HistoryReason.DAYS(), str(forecast.days if forecast else 0)),)
        return (Evidence(HistoryReason.STATE_PER_DAY(), grown), *days) if grown else days


class StateDoubles(SettingSign):
    name = "state_doubles"
    title = HistoryReason.STATE_DOUBLES()
    weight = 0.4

    def sentence(self, facts: DiagnosisFacts) -> Reason | None:
        growth, held = facts.forecast.state_per_day if facts.forecast else None, facts.normal.state_size
        if growth is None or held is None or held < MUCH or growth * DOUBLES_IN < held or not facts.runs:
            return None
        return HistoryReason.DOUBLES_WITHIN(growth=growth, held=held, days=held / growth)

    def advise(self, facts: DiagnosisFacts) -> Sequence[Advice]:
        return incremental(facts)


SIGNS = (SlowForThisHour(), TimeoutForeseen(), StateDoubles())
