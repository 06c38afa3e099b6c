"""Each Celery task does one thing and reports what changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from django.conf import settings

from dashboard.celery import app
from monitoring import tasks
from monitoring.models import Cluster
from monitoring.polling import service
from tests.waiting import eventually

pytestmark = pytest.mark.django_db
SCHEDULED = [entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()]


@pytest.fixture(autouse=True)
def polling(monkeypatch) -> Iterator[service.PollingThread]:
    """Yield a polling thread for this test, because the process's thread would outlive the test's database."""
    polling = service.PollingThread()
    monkeypatch.setattr(service, "POLLING", polling)
    yield polling
    polling.end()
    polling.join()


@pytest.mark.parametrize("name", SCHEDULED)
def test_every_scheduled_task_exists_and_runs_on_an_empty_database(name, caplog):
    app.loader.import_default_modules()
    with caplog.at_level(logging.INFO):
        app.tasks[name].apply(throw=True)
    assert caplog.records == [], "nothing happened, so nothing is said"


@pytest.mark.django_db(transaction=True)
def test_polls_continue_after_their_tick_and_report_once(caplog, polling):
    cluster = Cluster.objects.create(name="east", rest_url="http://127.0.0.1:1", poll_interval_s=0.2)
    with caplog.at_level(logging.INFO):
        tasks.poll_clusters()
        eventually("two tries", lambda: Cluster.objects.get().consecutive_failures > 1)
    assert caplog.text.count("east does not answer") == 1
    polling.end()
    polling.join()
    cluster.refresh_from_db()
    assert cluster.poll_claimed_until is None
    tasks.poll_clusters()
    assert not polling.alive, "a worker that shuts down begins nothing"
