from datetime import UTC, datetime, timedelta

import pytest

from monitoring.reasons.reason import render
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.timetable import BadSchedule, Cron, Every, Quiet, Quieted

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NO_JITTER = timedelta()


def test_every_so_often_starts_from_now_and_jobs_drift_apart():
    times = {Every(600).after(NOON, key, NO_JITTER) - NOON for key in range(20)}
    assert len(times) == 20
    assert all(timedelta(seconds=600) <= each < timedelta(seconds=630) for each in times)


@pytest.mark.parametrize(
    ("expression", "zone", "due"),
    [
        ("0 3 * * *", "UTC", datetime(2026, 11, 22, 3, tzinfo=UTC)),
        ("0 3 * * *", "Asia/Shanghai", datetime(2026, 11, 21, 19, tzinfo=UTC)),
        ("*/15 * * * *", "UTC", datetime(2026, 11, 21, 12, 15, tzinfo=UTC)),
        ("0 12 * * *", "UTC", datetime(2026, 11, 22, 12, tzinfo=UTC)),  # this minute has begun, so the next day
        ("0 0 29 2 *", "UTC", datetime(2028, 2, 29, tzinfo=UTC)),
    ],
)
def test_cron_times_are_those_of_the_zone(expression, zone, due):
    assert Cron(expression, zone).after(NOON, 1, NO_JITTER) == due


def test_the_hour_that_summer_time_skips_and_repeats_saves_once():
    nightly = Cron("30 2 * * *", "Europe/Berlin")
    spring = nightly.after(datetime(2027, 3, 28, 0, 0, tzinfo=UTC), 1, NO_JITTER)  # 02:30 does not exist that night
    assert spring == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
    autumn = nightly.after(datetime(2027, 10, 30, 23, 0, tzinfo=UTC), 1, NO_JITTER)  # 02:30 occurs twice
    assert nightly.after(autumn, 1, NO_JITTER) == datetime(2027, 11, 1, 1, 30, tzinfo=UTC)


def test_jobs_of_one_minute_are_spread_over_the_jitter_each_at_a_fixed_offset():
    jitter = timedelta(seconds=60)
    hourly = Cron("0 * * * *")
    at_one = NOON + timedelta(hours=1)
    shifts = [hourly.after(NOON + jitter, key, jitter) - at_one for key in range(500)]
    assert all(timedelta() <= shift < jitter for shift in shifts)
    assert max(shifts) - min(shifts) > timedelta(seconds=50)
    for key in range(500):
        due = hourly.after(NOON + jitter, key, jitter)
        assert hourly.after(due, key, jitter) == due + timedelta(hours=1)


@pytest.mark.parametrize("seconds", [29, 30 * 86_400 + 1, 0, -5, "600", 1.5, True, None])
def test_an_invalid_interval_is_refused(seconds):
    with pytest.raises(BadSchedule, match=r"^savepoint_interval_s is .*: a whole number of seconds from 30 to"):
        Every(seconds)


@pytest.mark.parametrize(
    ("expression", "zone", "expected"),
    [
        ("0 3 * *", "UTC", "savepoint_cron is '0 3 * *': five fields are needed: minute hour"),
        ("* * * * * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "the cron expression is not valid: Bad minute"),
        ("0 0 30 2 *", "UTC", "the cron expression is not valid: Bad day-of-month"),
        ("@daily", "UTC", "five fields"),
        ("0 3 * * *", "Mars/Olympus", "savepoint_time_zone is 'Mars/Olympus': the name of a time zone"),
        ("0 3 * * *", "../etc/passwd", "savepoint_time_zone"),
        ("0 3 * * *", "", "savepoint_time_zone"),
    ],
)
def test_invalid_times_are_refused_with_the_allowed_ones(expression, zone, expected):
    with pytest.raises(BadSchedule) as problem:
        Cron(expression, zone)
    assert expected in str(problem.value)


def test_a_timetable_reads_as_a_phrase():
    assert Every(5400).reason == SavepointReason.EVERY(length=5400)
    assert str(Every(5400)) == "every 1 h 30 min"
    assert str(Cron("0 3 * * MON-FRI", "Europe/Berlin")) == "at 03:00 on Monday through Friday (Europe/Berlin)"


def test_cron_expressions_are_not_translated():
    reason = Cron("0 3 * * MON-FRI", "Europe/Berlin").reason
    assert render(reason, "zh-hans").startswith("0 3 * * MON-FRI")


@pytest.mark.parametrize(
    ("hours", "zone", "at", "over"),
    [
        ("22:00-06:00", "UTC", (21, 21, 59), None),
        ("22:00-06:00", "UTC", (21, 22, 0), (22, 6, 0)),
        ("22:00-06:00", "UTC", (22, 5, 59), (22, 6, 0)),
        ("22:00-06:00", "UTC", (22, 6, 0), None),
        ("9:00 – 17:30", "UTC", (21, 12, 0), (21, 17, 30)),
        ("9:00-17:30", "UTC", (21, 8, 59), None),
        ("22:00-06:00", "Europe/Berlin", (21, 21, 30), (22, 5, 0)),
    ],
)
def test_quiet_hours_are_those_of_the_zone(hours, zone, at, over):
    at, over = (day and datetime(2026, 11, *day, tzinfo=UTC) for day in (at, over))
    assert Quiet.parse(hours, zone).over_at(at) == over


def test_quiet_hours_end_once_where_the_clock_is_set_back():
    quiet = Quiet.parse("01:00-02:30", "Europe/Berlin")  # 02:30 is at 00:30 and at 01:30 UTC that night
    assert quiet.over_at(datetime(2026, 10, 25, 0, 15, tzinfo=UTC)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert quiet.over_at(datetime(2026, 10, 25, 1, 15, tzinfo=UTC)) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_a_savepoint_due_in_quiet_hours_is_due_at_their_end():
    schedule = Quieted(Cron("0 */6 * * *"), Quiet.parse("22:00-06:00", "UTC"))
    assert schedule.after(NOON, 1, NO_JITTER) == datetime(2026, 11, 21, 18, tzinfo=UTC)
    evening = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
    assert schedule.after(evening, 1, NO_JITTER) == datetime(2026, 11, 22, 6, tzinfo=UTC)
    spread = {schedule.after(evening, key, timedelta(minutes=1)) for key in range(10)}
    assert len(spread) == 10
    assert max(spread) < datetime(2026, 11, 22, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize("hours", ["", "22:00", "22-6", "24:00-06:00", "22:60-06:00", "06:00-06:00", "night"])
def test_wrong_quiet_hours_are_refused(hours):
    with pytest.raises(BadSchedule, match=r"savepoint_quiet is .*: hours such as 22:00-06:00 are needed"):
        Quiet.parse(hours, "UTC")


def test_a_schedule_with_quiet_hours_is_rendered():
    reason = Quieted(Every(21_600), Quiet.parse("22:00-6:00", "Europe/Berlin")).reason
    assert str(reason) == "every 6 h, not between 22:00 and 06:00 (Europe/Berlin)"
