"""The Celery application. Tasks guard nothing: rows in PostgreSQL hold the truth, so a lost task is only late."""

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

from dashboard.worker_sign import SignOfLife

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")


def keep_logging(**_: Any) -> None:
    """Celery would set the root's level to its own --loglevel; the settings have said how we log."""


setup_logging.connect(keep_logging)
app = Celery("waymark")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["monitoring"])
app.steps["worker"].add(SignOfLife)
