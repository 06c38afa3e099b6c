"""Structured log lines: `key=value` for people by default, JSON with WAYMARK_LOG_FORMAT=json."""

from __future__ import annotations

import logging
import os

import structlog

pre_chain: list[structlog.typing.Processor] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.format_exc_info,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]

renderer: structlog.typing.Processor = (
    structlog.processors.JSONRenderer()
    if os.environ.get("WAYMARK_LOG_FORMAT") == "json"
    else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "logger", "event"])
)


def is_no_probe(record: logging.LogRecord) -> bool:
    """Django logs every answer of 500 and more as an error; /health says 503 to each who asks while we are blind."""
    return getattr(getattr(record, "request", None), "path", "") != "/health"


def without_trace_of_lost_redis(record: logging.LogRecord) -> bool:
    """Celery tells of an acknowledgement that Redis did not hear any more with all of its traces; the line says it, and
    the task is given out again."""
    from redis.exceptions import ConnectionError as Lost

    if record.name == "celery.worker.request" and record.exc_info and isinstance(record.exc_info[1], Lost | OSError):
        record.exc_info = None
    return True


def refusals_without_trace(record: logging.LogRecord) -> bool:
    """Shorten what Django logs of a refused request. A 403 comes with its whole traceback, and a program that may not
    do something or asks for what is not there could fill the log with warnings."""
    status = getattr(record, "status_code", 0)
    if record.name == "django.request" and status in (403, 404):
        record.exc_info = record.exc_text = None
        if getattr(getattr(record, "request", None), "path", "").startswith("/api/"):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True


def with_ended_sessions_as_news(record: logging.LogRecord) -> bool:
    """Django warns of every 401. A page whose session ended gets one for each of its live parts, and then asks seldom
    whether it is back (static/dashboard/js/session.js): that is how sessions end, and no warning."""
    asked = getattr(getattr(record, "request", None), "headers", {})
    if getattr(record, "status_code", None) == 401 and asked.get("HX-Request") == "true":
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True
