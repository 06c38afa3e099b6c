"""Slow checkpoints and forecasts, compared with the job's history of weeks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from monitoring.diagnosis.signs import advices, causes
from monitoring.diagnosis.signs.base import milliseconds
from monitoring.diagnosis.signs.history import HistoryReason
from monitoring.history.expectations import Basis, Expectation, Forecast
from monitoring.reasons.reason import render
from tests.monitoring.diagnosis.builders import NOW, USUAL, checkpoint, facts

AT_THIS_HOUR = Expectation(1000.0, 100.0, Basis.HOUR_OF_THE_WEEK(), 4)
MB = 1024**2


def causes_of(took: int, expected: Expectation, **values) -> list[str]:
    return [each.name for each in causes(facts(checkpoint(lasted=took, **values), usual={"duration": expected}))]


@pytest.mark.parametrize(
    ("took", "values", "expected"),
    [
        (2000, {}, True),
        (1999, {}, False),  # less than a second more
        (2000, {"is_savepoint": True}, False),
        (2000, {"status": "FAILED", "failure": "Task failed."}, False),
        (2000, {"status": "IN_PROGRESS"}, True),
    ],
)
def test_a_duration_far_above_that_of_this_hour_is_reported(took, values, expected) -> None:
    assert ("slow_for_this_hour" in causes_of(took, AT_THIS_HOUR, **values)) is expected


def test_a_slow_duration_exceeds_four_spreads() -> None:
    assert "slow_for_this_hour" not in causes_of(4900, replace(AT_THIS_HOUR, spread=1000.0))
    assert "slow_for_this_hour" in causes_of(5000, replace(AT_THIS_HOUR, spread=1000.0))


def test_a_duration_that_is_usual_at_this_hour_of_the_week_is_not_slow() -> None:
    """During the nightly load, the storage would look slow compared with the previous hundred checkpoints."""
    load = replace(AT_THIS_HOUR, expected=9000.0)
    assert causes_of(9000, load, async_=8500) == []
    assert causes_of(9000, replace(load, basis=Basis.ALL_HOURS()), async_=8500) == ["slow_storage"]


def test_the_sentence_is_rendered_in_both_languages() -> None:
    found = next(
        each
        for each in causes(facts(checkpoint(number=7, lasted=3000), usual={"duration": AT_THIS_HOUR}))
        if each.name == "slow_for_this_hour"
    )
    hours = Basis.HOUR_OF_THE_WEEK()
    assert found.sentence == HistoryReason.TOOK_LONGER(number=7, took=3000, expected=1000, basis=hours)
    usually = "checkpoints of this job usually take 1 s (this hour of the week, the last 4 weeks)"
    assert str(found.sentence) == f"Checkpoint 7 took 3 s; {usually}."
    assert "每周此时" in render(found.sentence, "zh-hans")
    assert found.evidence[0].usual == milliseconds(1000)
    assert found.evidence[0].against == HistoryReason.AT_THIS_HOUR_OF_THE_WEEK()


def advice_of(expected: Forecast | None, **values) -> list[str]:
    return [each.name for each in advices(facts(forecast=expected, **values))]


def test_the_day_of_the_timeout_is_predicted_up_to_ninety_days_ahead() -> None:
    growing = Forecast(None, 1000.0, NOW + timedelta(days=89), 28)
    assert advice_of(growing) == ["timeout_foreseen"]
    assert advice_of(replace(growing, exceeds_timeout_on=NOW + timedelta(days=91))) == []
    assert advice_of(replace(growing, exceeds_timeout_on=None)) == []
    assert advice_of(growing, runs=False) == []
    assert advice_of(growing, normal=replace(USUAL, duration_p95=36_000)) == ["timeout_near"]
    (found,) = advices(facts(forecast=growing))
    day = NOW + timedelta(days=89)
    assert found.sentence == HistoryReason.TAKES_LONGER_DAILY(growth=1000, timeout=60_000, day=day)


def test_a_state_that_doubles_within_two_months_is_reported() -> None:
    held = replace(USUAL, state_size=600.0 * MB)
    assert advice_of(Forecast(10.0 * MB, None, None, 28), normal=held) == ["state_doubles"]
    assert advice_of(Forecast(9.9 * MB, None, None, 28), normal=held) == []
    assert advice_of(Forecast(-10.0 * MB, None, None, 28), normal=held) == []
    assert advice_of(Forecast(10.0 * MB, None, None, 28), normal=replace(held, state_size=99.0 * MB)) == []
