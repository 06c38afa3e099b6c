"""The Celery application as `up` starts it: it tells the supervisor, through a file, when a process is ready."""

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
    """About a setting that we set on purpose, told at each loss of Redis. Celery has its own filter set by now."""
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)


def say_ready(**_: Any) -> None:
    path = os.environ.get(READY_FILE)
    if path:
        Path(path).write_text(f"{os.getpid()}\n")


# About running as root, which a container's only user may: messages are JSON and the broker is ours.
warnings.filterwarnings("ignore", category=SecurityWarning)
worker_ready.connect(hush)
worker_ready.connect(say_ready)
beat_init.connect(say_ready)
