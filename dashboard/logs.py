"""Structured log lines: `key=value` by default, JSON with WAYMARK_LOG_FORMAT=json."""

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


def exclude_health_probe(record: logging.LogRecord) -> bool:
    """Drop records about /health. Django logs each 503 as an error, and /health has this status during an outage."""
    return getattr(getattr(record, "request", None), "path", "") != "/health"


def drop_lost_redis_traceback(record: logging.LogRecord) -> bool:
    """Drop the traceback of an acknowledgement that failed because Redis was lost.

    The message says enough, and Redis delivers the task again.
    """
    from redis.exceptions import ConnectionError as Lost

    if record.name == "celery.worker.request" and record.exc_info and isinstance(record.exc_info[1], Lost | OSError):
        record.exc_info = None
    return True


def drop_refusal_traceback(record: logging.LogRecord) -> bool:
    """Drop the traceback of a 403 or 404, and log it as information for the API.

    Otherwise an API client without permissions or with wrong paths could fill the log with warnings.
    """
    status = getattr(record, "status_code", 0)
    if record.name == "django.request" and status in (403, 404):
        record.exc_info = record.exc_text = None
        if getattr(getattr(record, "request", None), "path", "").startswith("/api/"):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True


def log_ended_session_as_info(record: logging.LogRecord) -> bool:
    """Log a 401 of a live part as information, because it only means that the session of a page has ended.

    Each live part of the page gets a 401, and later the page polls the session (static/dashboard/js/session.js).
    """
    asked = getattr(getattr(record, "request", None), "headers", {})
    if getattr(record, "status_code", None) == 401 and asked.get("HX-Request") == "true":
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True
