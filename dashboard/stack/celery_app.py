"""The Celery application for `manage.py up`. Each process creates a file when it is ready, for the supervisor."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.signals import beat_init, worker_ready

from dashboard.celery import app
from dashboard.stack.parts import READY_FILE

__all__ = ["app"]


def hush(**_: Any) -> None:
    """Ignore Celery's warning about a setting that is intended. Celery repeats it at each lost Redis connection.

    It is called when the worker is ready, because Celery sets its filters before that.
    """
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)


def say_ready(**_: Any) -> None:
    path = os.environ.get(READY_FILE)
    if path:
        Path(path).write_text(f"{os.getpid()}\n")


# Ignore the warning about a worker that runs as root, as in a container: messages are JSON, and the broker is trusted.
warnings.filterwarnings("ignore", category=SecurityWarning)
worker_ready.connect(hush)
worker_ready.connect(say_ready)
beat_init.connect(say_ready)
