"""Every component is checked with a constant number of queries, and a missing sign of life is a fact."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from monitoring import broker
from monitoring.models import ArchivedFile, Tick
from monitoring.selfwatch.own_facts import Database, Queue, Unavailable, gather


def test_all_components_are_reported(rows, redis, later, now):
    east = rows.cluster(name="east", next_poll_at=later(-42), last_answer_at=later(-45))
    rows.cluster(name="off", enabled=False)
    rows.run(rows.job(east, name="old"), observed_at=later(-300))
    rows.run(rows.job(east, name="ended"), state="FINISHED", observed_at=later(-9000))
    Tick.objects.create(task="poll_clusters", runs=3)
    broker.write_heartbeat(redis, "beat", leads=True)
    redis.lpush(broker.QUEUE, "a", "b")

    facts = gather(now)
    assert isinstance(facts.database, Database)
    assert facts.database.size_bytes > 1_000_000
    assert isinstance(facts.queue, Queue)
    assert (facts.queue.waiting, [sign.name for sign in facts.queue.beats]) == (2, [broker.process_name()])
    assert [(cluster.name, cluster.lag_s) for cluster in facts.stored.clusters] == [("east", 42.0)]
    assert (facts.stored.oldest.name, facts.stored.oldest.seen_at) == ("old", later(-45))
    assert facts.stored.ticks["poll_clusters"].runs == 3


def test_a_run_seen_with_its_cluster_is_fresh_and_a_missing_one_is_not(rows, redis, later, now):
    east = rows.cluster(last_answer_at=later(-2))
    rows.run(rows.job(east, name="lives"), observed_at=later(-300))
    rows.run(rows.job(east, name="missing"), observed_at=later(-200), missing_since=later(-200))
    assert gather(now).stored.oldest.name == "missing"


def test_the_number_of_queries_does_not_depend_on_the_number_of_clusters_and_jobs(rows, redis):
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            gather(timezone.now())
        return len(queries)

    before = asked()
    for _ in range(10):
        rows.run(rows.job(rows.cluster()))
    assert asked() == before <= 6


def test_days_of_files_that_overlap_are_counted_once(rows, redis, now):
    ranges = {"a": (3, 5), "b": (4, 8), "removed": (1, 2)}
    for path, (first, end) in ranges.items():
        ArchivedFile.objects.create(
            kind="checkpoints",
            cluster_id=1,
            month=date(2026, 8, 1),
            since=datetime(2026, 8, first, 7, tzinfo=UTC),
            until=datetime(2026, 8, end, tzinfo=UTC),
            path=path,
            rows=1,
            size=10,
            least_id=1,
            greatest_id=1,
            state="removed" if path == "removed" else "live",
        )
    archive = gather(now).stored.archive
    assert (archive.days, archive.since, archive.files, archive.bytes) == (5, date(2026, 8, 3), 2, 20)


def test_an_unreachable_redis_is_a_fact(db, settings):
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    assert isinstance(gather(timezone.now()).queue, Unavailable)


@pytest.mark.django_db(transaction=True)
def test_an_unreachable_database_is_a_fact(settings, redis):
    connection.close()
    good = connection.settings_dict["HOST"]
    connection.settings_dict["HOST"] = "/nowhere"
    try:
        facts = gather(timezone.now())
    finally:
        connection.settings_dict["HOST"] = good
    assert isinstance(facts.database, Unavailable)
    assert facts.stored is None
    assert isinstance(facts.queue, Queue)
