"""Record each run of a periodic task. A failure costs one tick, and a repeated one is logged once a minute."""

from __future__ import annotations

import functools
import json
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from monitoring import broker, clock
from monitoring.reasons.reason import Reason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 60.0
_TEXT_LIMIT = 500

_DONE = """
INSERT INTO monitoring_tick
    (task, worker, ended_at, took_ms, sentence, sentence_value, said_at, failure, runs, failures)
VALUES (%(task)s, %(worker)s, %(now)s, %(took_ms)s, %(sentence)s, %(value)s::jsonb, %(said_at)s, '', 1, 0)
ON CONFLICT (task) DO UPDATE SET
    worker = excluded.worker, ended_at = excluded.ended_at, took_ms = excluded.took_ms, runs = monitoring_tick.runs + 1,
    sentence = CASE WHEN excluded.said_at IS NULL THEN monitoring_tick.sentence ELSE excluded.sentence END,
    sentence_value =
        CASE WHEN excluded.said_at IS NULL THEN monitoring_tick.sentence_value ELSE excluded.sentence_value END,
    said_at = coalesce(excluded.said_at, monitoring_tick.said_at)
"""
_FAILED = """
INSERT INTO monitoring_tick (task, worker, sentence, failed_at, failure, failure_value, runs, failures)
VALUES (%(task)s, '', '', %(now)s, %(failure)s, %(value)s::jsonb, 1, 1)
ON CONFLICT (task) DO UPDATE SET failed_at = excluded.failed_at, failure = excluded.failure,
    failure_value = excluded.failure_value, runs = monitoring_tick.runs + 1, failures = monitoring_tick.failures + 1
"""


class LogThrottle:
    """Decides whether a message is logged: when it is new, and once a minute while it repeats. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._said: dict[str, tuple[object, float]] = {}

    def should_log(self, subject: str, what: object) -> bool:
        now = self._monotonic()
        with self._lock:
            last, at = self._said.get(subject, (None, 0.0))
            if last == what and now - at < AGAIN_AFTER_S:
                return False
            self._said[subject] = (what, now)
            return True

    def clear(self, subject: str) -> bool:
        """Return whether the subject had been logged, and forget it, because it is over."""
        with self._lock:
            return self._said.pop(subject, None) is not None


LOG_THROTTLE = LogThrottle()
_DATABASE = "database"


def recorded(act: Callable[[], CycleReport | None]) -> Callable[[], None]:
    """Return the body of a task, which runs `act`, records its report, and raises nothing.

    Celery does not see a failure: the next tick tries again, and no code reads a task's result.
    """
    task = act.__name__

    @functools.wraps(act)
    def run() -> None:
        started = time.monotonic()
        try:
            report = act() or CycleReport()
            _record_success(task, report, round((time.monotonic() - started) * 1000), clock.now())
        except (OperationalError, InterfaceError) as error:
            database_away(error)
        except Exception as error:  # noqa: BLE001  (outermost level: a failed tick must not stop the next)
            _failed(task, error)

    return run


def log_report(report: CycleReport) -> None:
    """Log the report if it is not empty."""
    if report != CycleReport():
        log.log(logging.DEBUG if report.is_quiet else logging.INFO, "%s", report)


def _record_success(task: str, report: CycleReport, took_ms: int, now: datetime) -> None:
    if LOG_THROTTLE.should_log(f"{task} says", report):  # while a task waits, each tick has the same report
        log_report(report)
    reason = None if report.is_quiet else WorkReason.REPORT(parts=[*report.done, *report.left])
    _write(
        _DONE,
        task=task,
        worker=broker.process_name(),
        now=now,
        took_ms=took_ms,
        sentence="" if reason is None else str(reason),
        value=None if reason is None else json.dumps(reason.as_json()),
        said_at=None if reason is None else now,
    )
    LOG_THROTTLE.clear(task)
    if LOG_THROTTLE.clear(_DATABASE):
        log.info("The database can be used again.")


def database_away(error: Exception) -> None:
    """Log that the database does not answer, once a minute for all tasks and the poller together."""
    if LOG_THROTTLE.should_log(_DATABASE, "away"):
        log.warning("The database cannot be used, and nothing is watched until it can: %s", _first_line(error))


def log_failure(task: str, error: Exception) -> tuple[str, Reason | None]:
    """Log an unexpected error, once a minute while it repeats. Return its text, and its reason if it has one."""
    reason = getattr(error, "reason", None)
    if not isinstance(reason, Reason) or str(reason) != str(error):
        reason = None  # the error has no reason, or its text says more
    text = str(reason or f"{type(error).__name__}: {_first_line(error)}")[:_TEXT_LIMIT]
    if LOG_THROTTLE.should_log(task, text):
        log.error("%s failed, the next tick tries again: %s", task, text, exc_info=error)
    return text, reason


def _failed(task: str, error: Exception) -> None:
    text, reason = log_failure(task, error)
    try:
        value = None if reason is None else json.dumps(reason.as_json())
        _write(_FAILED, task=task, now=clock.now(), failure=text, value=value)
    except DatabaseError as again:
        database_away(again)


def _write(sql: str, **values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)  # type: ignore[arg-type]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
