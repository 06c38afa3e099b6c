"""All workers use the time of the database, and not their own clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from monitoring.clock import LOOK_AGAIN_AFTER_S, DatabaseClock

pytestmark = pytest.mark.django_db


class Monotonic:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [now] = cursor.fetchone()
    return now


def test_the_time_is_that_of_the_database(monotonic: Monotonic) -> None:
    before = database_now()
    assert before <= DatabaseClock(monotonic).now() <= database_now()


def test_the_clock_counts_monotonic_time_between_two_readings(
    monotonic: Monotonic, django_assert_num_queries: Any
) -> None:
    clock = DatabaseClock(monotonic)
    first = clock.now()
    monotonic.at += 7
    with django_assert_num_queries(0):
        assert clock.now() - first == timedelta(seconds=7)
    monotonic.at += LOOK_AGAIN_AFTER_S
    with django_assert_num_queries(1):
        assert clock.now() - first < timedelta(seconds=7), "asked again, it is the database's once more"


@pytest.mark.django_db(transaction=True)
def test_the_clock_continues_while_the_database_is_unreachable(monotonic: Monotonic) -> None:
    clock = DatabaseClock(monotonic)
    first = clock.now()
    connection.close()
    good = connection.settings_dict["HOST"]
    connection.settings_dict["HOST"] = "/nowhere"
    try:
        monotonic.at += 3600
        assert clock.now() - first == timedelta(hours=1)
        assert abs(DatabaseClock(monotonic).now() - datetime.now(UTC)) < timedelta(seconds=10)
    finally:
        connection.settings_dict["HOST"] = good
