"""The metrics for Prometheus, read by its own parser."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from monitoring.metrics import exposition
from monitoring.models import RunStateChange, Tick
from monitoring.selfwatch.own_facts import gather
from monitoring.selfwatch.verdict import judge

_JOBS_OF_THEM = """
WITH jobs AS (
    INSERT INTO monitoring_job
    SELECT row.* FROM generate_series(1, %(count)s) n CROSS JOIN monitoring_job made
    CROSS JOIN LATERAL jsonb_populate_record(made, jsonb_build_object(
        'id', nextval(pg_get_serial_sequence('monitoring_job', 'id')),
        'cluster_id', (%(clusters)s::int[])[1 + n %% 50], 'name', 'job ' || n, 'current_run_id', NULL)) row
    RETURNING id
)
INSERT INTO monitoring_run
SELECT row.* FROM jobs CROSS JOIN monitoring_run made
CROSS JOIN LATERAL jsonb_populate_record(made, jsonb_build_object(
    'id', nextval(pg_get_serial_sequence('monitoring_run', 'id')), 'job_id', jobs.id,
    'engine_job_id', md5(jobs.id::text), 'counts', '{"completed": 7, "failed": 1}'::jsonb)) row
"""
_CURRENT_RUNS = (
    "UPDATE monitoring_job job SET current_run_id = run.id FROM monitoring_run run WHERE run.job_id = job.id"
)
_CHECKPOINTS_OF_THEM = """
INSERT INTO monitoring_checkpoint
SELECT row.* FROM monitoring_run run CROSS JOIN generate_series(1, 2) n CROSS JOIN monitoring_checkpoint made
CROSS JOIN LATERAL jsonb_populate_record(made, jsonb_build_object(
    'id', nextval(pg_get_serial_sequence('monitoring_checkpoint', 'id')), 'run_id', run.id, 'checkpoint_id', 1000 + n,
    'triggered_at', %(now)s - n * interval '1 min', 'latest_ack_at', %(now)s - n * interval '1 min',
    'end_to_end_duration', 1000, 'state_size', 1, 'checkpointed_size', 1, 'alignment_max', 1)) row
"""


@pytest.fixture(autouse=True)
def no_redis(settings):
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"


def scrape(now):
    facts = gather(now)
    text = exposition(facts, judge(facts, 60)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(family):
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_the_metrics_of_a_job_come_from_its_newest_completed_checkpoint(rows, now, later):
    job = rows.job(rows.cluster(name="east", last_answer_at=now), name="orders")
    run = rows.run(job, counts={"completed": 7, "failed": 2, "in_progress": 1, "total": 10})
    rows.checkpoint(run, 1, triggered_at=later(-120), latest_ack_at=later(-119))
    figures = {"end_to_end_duration": 1500, "checkpointed_size": 10, "state_size": 4096, "alignment_max": 250}
    rows.checkpoint(run, 2, triggered_at=later(-60), latest_ack_at=later(-58), **figures)
    rows.checkpoint(run, 3, triggered_at=later(-30), latest_ack_at=later(-20), is_savepoint=True)
    rows.failed(run, 4, later(-5))
    found = scrape(now)
    one = ("east", "orders")
    last = "waymark_job_last_completed_checkpoint"
    assert values(found[f"{last}_timestamp_seconds"]) == {one: later(-58).timestamp()}
    assert values(found[f"{last}_duration_seconds"]) == {one: 1.5}
    assert values(found[f"{last}_alignment_seconds"]) == {one: 0.25}
    assert values(found[f"{last}_size_bytes"]) == {one: 10}
    assert values(found[f"{last}_state_size_bytes"]) == {one: 4096}
    assert values(found["waymark_job_checkpoints_completed"]) == {one: 7}
    assert values(found["waymark_job_checkpoints_failed"]) == {one: 2}
    assert values(found["waymark_job_checkpoints_in_progress"]) == {one: 1}
    assert values(found["waymark_job_state"]) == {(*one, "RUNNING"): 1}
    assert values(found["waymark_job_observed_timestamp_seconds"]) == {one: now.timestamp()}


def test_restarts_never_fall(rows, now):
    job = rows.job()
    first = rows.run(job)
    RunStateChange.objects.create(run=first, at=now, source="RUNNING", target="RESTARTING")
    RunStateChange.objects.create(run=first, at=now, source="RUNNING", target="RUNNING", why="The engine restarted it.")
    RunStateChange.objects.create(run=first, at=now, source="", target="RUNNING", why="Seen for the first time.")
    assert list(values(scrape(now)["waymark_job_restarts"]).values()) == [2]
    rows.run(job)
    assert list(values(scrape(now)["waymark_job_restarts"]).values()) == [3]


def test_a_new_run_without_a_checkpoint_keeps_the_job_s_last_one(rows, now, later):
    job = rows.job()
    rows.checkpoint(rows.run(job), 1, latest_ack_at=later(-60))
    rows.run(job)
    found = scrape(now)["waymark_job_last_completed_checkpoint_timestamp_seconds"]
    assert list(values(found).values()) == [later(-60).timestamp()]


def test_names_with_line_breaks_and_quotes_are_parsed_unchanged(rows, now):
    name = 'a "quoted" \\ back\nslash {job="x"} # ünï'
    rows.run(rows.job(rows.cluster(name=name[:90]), name=name))
    [sample] = scrape(now)["waymark_job_state"].samples
    assert (sample.labels["job"], sample.labels["cluster"]) == (name, name[:90])


def test_names_units_and_help_are_as_prometheus_wants_them(rows, now):
    rows.run(rows.job(rows.cluster(next_poll_at=now)))
    Tick.objects.create(task="poll_clusters", ended_at=now, took_ms=120, runs=5)
    for family in scrape(now).values():
        assert family.name.startswith("waymark_")
        assert family.documentation.endswith((".", ")."))
        assert not any(unit in family.name for unit in ("_ms", "millis", "_kb", "_total_"))
        for sample in family.samples:
            assert sample.name.endswith("_total") is (family.type == "counter")


def test_waymark_exports_metrics_about_itself(rows, now, later):
    rows.cluster(name="east", next_poll_at=later(-12), last_answer_at=later(-15), consecutive_failures=2)
    rows.cluster(name="off", enabled=False)
    Tick.objects.create(task="poll_clusters", ended_at=later(-1), took_ms=120, runs=5, failures=1)
    found = scrape(now)
    assert values(found["waymark_healthy"]) == {(): 0.0}, "Redis is away"
    assert values(found["waymark_redis_up"]) == {(): 0.0}
    assert values(found["waymark_database_up"]) == {(): 1.0}
    assert values(found["waymark_database_size_bytes"])[()] > 1_000_000
    assert values(found["waymark_cluster_poll_lag_seconds"]) == {("east",): 12.0}
    assert values(found["waymark_cluster_consecutive_failures"]) == {("east",): 2.0}
    assert values(found["waymark_task_runs"]) == {("poll_clusters",): 5.0}
    assert values(found["waymark_task_failures"]) == {("poll_clusters",): 1.0}
    assert values(found["waymark_task_last_duration_seconds"]) == {("poll_clusters",): 0.12}
    assert values(found["waymark_deliveries"]) == {("pending",): 0.0, ("dead",): 0.0}
    archive = ("archived_days", "archived_bytes", "archived_files_unreadable")
    assert [values(found[f"waymark_{name}"]) for name in archive] == [{(): 0.0}] * 3


def test_a_thousand_jobs_take_as_many_queries_as_one(rows, now):
    def scraped() -> tuple[int, bytes]:
        with CaptureQueriesContext(connection) as queries:
            facts = gather(now)
            text = exposition(facts, judge(facts, 60))
        return len(queries), text

    rows.checkpoint(rows.run(rows.job()), 1)
    queries_of_one, _ = scraped()
    _fill(rows, 1000)
    queries, text = scraped()
    assert queries == queries_of_one
    assert text.count(b"waymark_job_state{") == 1001


def _fill(rows, count: int) -> None:
    """Store `count` jobs on 50 clusters, each with a run and two checkpoints."""
    clusters = [rows.cluster().pk for _ in range(50)]
    with connection.cursor() as cursor:
        cursor.execute(_JOBS_OF_THEM, {"clusters": clusters, "count": count, "now": rows.now})
        cursor.execute(
            "UPDATE monitoring_job job SET current_run_id = r.id FROM monitoring_run r WHERE r.job_id = job.id"
        )
        cursor.execute(_CHECKPOINTS_OF_THEM, {"now": rows.now})
        cursor.execute("ANALYZE monitoring_job, monitoring_run, monitoring_checkpoint")
