"""A tick stores one row, and logs only a few lines even if it fails often."""

from __future__ import annotations

import logging

import pytest
from django.db import OperationalError, connection

from monitoring import broker
from monitoring.models import Tick
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from monitoring.secret import SecretUnreadable
from monitoring.selfwatch import ticks
from monitoring.selfwatch.ticks import LogThrottle, recorded

pytestmark = pytest.mark.django_db
CHANGED = WorkReason.PROGRAMS_COPIED(count=2)
WAITING = WorkReason.PIPELINE_WAITS(name="history", others=["demo"])


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "LOG_THROTTLE", LogThrottle())


def test_a_run_of_a_task_stores_its_time_duration_worker_and_report():
    @recorded
    def look() -> CycleReport:
        return CycleReport((CHANGED, WAITING))

    look()
    look()
    row = Tick.objects.get()
    assert (row.task, row.runs, row.failures) == ("look", 2, 0)
    assert row.sentence_value == WorkReason.REPORT(parts=[CHANGED, WAITING])
    assert row.sentence == "2 programs copied. history is not started yet: demo is starting."
    assert row.worker == broker.process_name()
    assert row.ended_at is not None
    assert row.took_ms is not None


def test_postponed_work_is_not_logged_at_every_tick(caplog):
    copied = WorkReason.PROGRAMS_COPIED(count=1)
    text = iter([*[CycleReport((CHANGED,))] * 3, CycleReport((copied,)), CycleReport(), CycleReport((CHANGED,))])
    look = recorded(lambda: next(text))
    with caplog.at_level(logging.INFO, ticks.__name__):
        for _ in range(6):
            look()
    assert caplog.messages == ["2 programs copied.", "1 program copied.", "2 programs copied."]


def test_an_empty_run_keeps_the_last_report():
    text = iter([CycleReport((CHANGED,)), None, CycleReport(left=(WAITING,))])
    look = recorded(lambda: next(text))
    for _ in range(3):
        look()
    row = Tick.objects.get()
    assert (row.sentence, row.runs) == ("2 programs copied.", 3)
    assert row.sentence_value == WorkReason.REPORT(parts=[CHANGED])


def test_postponed_work_is_logged_at_debug_level(caplog):
    look = recorded(lambda: CycleReport(left=(WAITING,)))
    with caplog.at_level(logging.DEBUG, ticks.__name__):
        look()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("DEBUG", str(WAITING))]
    assert (Tick.objects.get().sentence, Tick.objects.get().sentence_value) == ("", None)


def test_a_failure_is_kept_and_shown_once_a_minute(caplog):
    @recorded
    def look() -> None:
        raise ValueError("no such thing\nand more")

    for _ in range(50):
        look()
    row = Tick.objects.get()
    assert (row.runs, row.failures, row.failure, row.ended_at) == (50, 50, "ValueError: no such thing", None)
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_the_reason_of_a_failure_is_stored_until_an_error_without_one():
    errors: list[Exception] = [SecretUnreadable(CHANGED), ValueError("no such thing")]

    @recorded
    def look() -> None:
        raise errors.pop(0)

    look()
    row = Tick.objects.get()
    assert (row.failure, row.failure_value) == (str(CHANGED), CHANGED)
    look()
    row = Tick.objects.get()
    assert (row.failure, row.failure_value) == ("ValueError: no such thing", None)


def test_another_failure_and_the_same_one_later_are_shown_again(monkeypatch, caplog):
    now = 0.0
    monkeypatch.setattr(ticks, "LOG_THROTTLE", LogThrottle(lambda: now))
    reasons = iter(["one", "one", "other", "other"])

    @recorded
    def look() -> None:
        raise ValueError(next(reasons))

    look()
    look()
    look()
    now = 61.0
    look()
    assert len(caplog.records) == 3


def test_an_unreachable_database_is_one_log_line_for_all_tasks(caplog):
    away = True

    def act() -> None:
        if away:
            raise OperationalError('connection to server on socket "x" failed\n\tIs the server running?')

    tasks = [recorded(act) for _ in range(5)]
    with caplog.at_level(logging.INFO, ticks.__name__):
        for _ in range(20):
            for task in tasks:
                task()
        away = False
        tasks[0]()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[0].endswith('connection to server on socket "x" failed')
    assert all(record.exc_info is None for record in caplog.records)
    assert caplog.messages[1] == "The database can be used again."


def test_noting_is_one_statement(django_assert_num_queries):
    look = recorded(lambda: None)
    with django_assert_num_queries(1):
        look()
    assert connection.in_atomic_block
