"""The tasks: each does its one thing and says what changed."""

from __future__ import annotations

import logging

import pytest
from django.conf import settings

from dashboard.celery import app
from monitoring import tasks

pytestmark = pytest.mark.django_db
SCHEDULED = [entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()]


@pytest.mark.parametrize("name", SCHEDULED)
def test_every_scheduled_task_exists_and_runs_on_an_empty_database(name, caplog):
    app.loader.import_default_modules()
    with caplog.at_level(logging.INFO):
        app.tasks[name].apply(throw=True)
    assert caplog.records == [], "nothing happened, so nothing is said"


def test_what_happened_is_said_once(rows, caplog):
    rows.cluster(name="east")
    with caplog.at_level(logging.INFO):
        tasks.poll_clusters()
    assert "east does not answer" in caplog.text
