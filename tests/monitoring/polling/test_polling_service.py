"""The poller thread of a process continues after its tick, and after an outage of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from monitoring.models import Checkpoint, Cluster
from monitoring.polling import service
from monitoring.polling.service import PollingThread
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def polling() -> Iterator[PollingThread]:
    polling = PollingThread()
    yield polling
    polling.end()
    polling.join()


def stored(count: int) -> bool:
    return Checkpoint.objects.filter(final=True).count() == count


@contextmanager
def no_connection_possible() -> Iterator[None]:
    """Prevent all database connections except the open one of the test."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE CURRENT_USER NOLOGIN")
        try:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            yield
        finally:
            cursor.execute("ALTER ROLE CURRENT_USER LOGIN")


def test_polls_continue_after_an_outage_of_the_database(engine, cluster, polling, caplog, monkeypatch):
    noticed: list[Exception] = []
    monkeypatch.setattr(service, "database_away", noticed.append)
    Cluster.objects.update(poll_interval_s=1)
    job = engine.job(interval=1000)
    job.add(1)
    polling.keep_going(print)
    eventually("the first checkpoint", lambda: stored(1))
    with no_connection_possible():
        eventually("it is noticed", lambda: noticed)
        job.add(2)
    eventually("the next checkpoint", lambda: stored(2))
    # py4j, which another test of this process may have used, logs its lost connections under this name.
    assert not [record for record in caplog.records if record.exc_info and record.name != "root"]


def test_a_poller_that_ends_leaves_nothing_claimed(engine, cluster, polling):
    engine.hang = ".*"
    polling.keep_going(print)
    eventually("the flight", lambda: engine.asked)
    polling.end()
    polling.join()
    assert not polling.alive
    assert Cluster.objects.filter(poll_claimed_by="", poll_claimed_until=None).count() == 1
