"""The Celery application. Tasks guard nothing: rows in PostgreSQL hold the truth, so a lost task is only late."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")

app = Celery("waymark")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["monitoring"])
