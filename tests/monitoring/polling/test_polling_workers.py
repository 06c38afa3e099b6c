"""A worker's memory is only a cache: several workers, killed workers, and unchanged answers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.models import Checkpoint, CheckpointGap, Cluster, OperatorCheckpoint, Run, RunStateChange
from monitoring.polling.claim import LEASE
from monitoring.reasons.work import WorkReason
from tests.waiting import eventually

LOOKED = {"id", "observed_at", "first_seen_at", "noticed_at", "at", "run_id", "job_id", "checkpoint_id"}


def rows(cluster: Cluster) -> list[list[dict]]:
    """Return all rows of a cluster, without keys and the times of polls."""
    queries = (
        Run.objects.filter(job__cluster=cluster).order_by("started_at", "number"),
        RunStateChange.objects.filter(run__job__cluster=cluster).order_by("run__started_at", "id"),
        Checkpoint.objects.filter(run__job__cluster=cluster).order_by("run__started_at", "checkpoint_id"),
        OperatorCheckpoint.objects.filter(checkpoint__run__job__cluster=cluster).order_by(
            "checkpoint__run__started_at", "checkpoint__checkpoint_id", "position"
        ),
        CheckpointGap.objects.filter(run__job__cluster=cluster).order_by("first_id"),
    )
    return [[{k: v for k, v in row.items() if k not in LOOKED} for row in query.values()] for query in queries]


def life(engine):
    """Change a job step by step. The test polls after each step."""
    job = engine.job(interval=60_000)
    job.add(1, 2)
    yield
    pending = job.add(3, status="IN_PROGRESS")
    yield
    yield
    pending.status = "COMPLETED"
    job.checkpoints[1].discarded = True
    yield
    job.add(4, status="FAILED")
    yield
    job.restored = {"id": 3, "restore_timestamp": job.started + 9000, "is_savepoint": False, "external_path": "file:/3"}
    job.moved = job.started + 8500
    yield
    job.add(*range(5, 30))
    yield
    # Twice, with three steps each, so that each of two alternating workers polls every status.
    for _ in range(2):
        job.state, job.ended = "FAILED", job.started + 20_000
        yield
        job.state, job.ended = "RUNNING", -1
        yield
        yield
    for _ in range(2):
        engine.jobs.remove(job)
        yield
        engine.jobs.append(job)
        yield
        yield
    second = engine.job(started=job.started + 60_000)
    job.state, job.ended = "FAILED", job.started + 50_000
    yield
    second.add(30, is_savepoint=True, path="file:/sp/1")
    yield
    yield


def test_alternating_workers_store_the_same_as_one_worker(engine, watch, poll):
    alone, shared = watch(engine), watch(engine)
    for step, _ in enumerate(life(engine)):
        poll.clock += timedelta(seconds=20)
        for cluster, worker in ((alone, 0), (shared, 1 + step % 2)):
            Cluster.objects.exclude(pk=cluster.pk).update(enabled=False)
            Cluster.objects.filter(pk=cluster.pk).update(enabled=True)
            poll.tick(worker)
        assert rows(shared) == rows(alone), f"after step {step}"
    assert Checkpoint.objects.filter(run__job__cluster=alone, final=False).count() == 0
    assert CheckpointGap.objects.filter(run__job__cluster=shared).exists()


def test_a_worker_whose_claim_expired_during_a_poll_writes_nothing(engine, cluster, poll):
    engine.job().add(1)
    engine.hang = "/jobs/overview"
    poll.worker(0).start_due()
    eventually("asked", lambda: "/jobs/overview" in engine.asked)
    engine.hang = ""
    poll.clock += LEASE
    poll.tick(1)
    assert Checkpoint.objects.count() == 1
    before = Cluster.objects.values().get()
    engine.jobs[0].add(2)
    engine.released.set()
    sentences = []
    while poll.worker(0).in_flight:
        sentences += poll.worker(0).serve(30.0)
    assert sentences == [WorkReason.POLL_OVERTAKEN(cluster=str(cluster))]
    assert Cluster.objects.values().get() == before
    assert Checkpoint.objects.count() == 1


def test_a_worker_that_stops_releases_its_claims(engine, cluster, poll):
    engine.hang = ".*"
    poll.worker(0).start_due()
    poll.stop()
    engine.hang = ""
    poll.tick(1)
    cluster.refresh_from_db()
    assert cluster.last_answer_at == poll.clock


def test_a_cluster_that_hangs_keeps_no_other_from_its_next_polls(engine, make_engine, watch, poll):
    hanging = make_engine()
    hanging.hang = ".*"
    watch(hanging)
    sound = watch(engine)
    job = engine.job()
    worker = poll.worker(0)
    for number in range(1, 5):
        poll.clock += timedelta(seconds=10)
        job.add(number)
        worker.renew_claims()
        worker.start_due()
        while worker.in_flight > 1:
            worker.serve(30.0)
        assert Checkpoint.objects.filter(final=True).count() == number
    assert Cluster.objects.get(pk=sound.pk).last_answer_at == poll.clock
    assert hanging.asked == ["/overview"], "one flight, and it hangs"


def test_an_unchanged_answer_needs_one_statement(engine, cluster, poll):
    for _ in range(20):
        engine.job().add(1, 2)
    poll()
    poll()
    engine.asked.clear()
    poll.clock += timedelta(seconds=5)  # external savepoints are read every 10 s
    engine.jobs[0].moved = None
    with CaptureQueriesContext(connection) as queries:
        poll.tick(0)
    touched = [each["sql"] for each in queries if "UPDATE monitoring_" in each["sql"].replace('"', "")]
    assert len(touched) == 2, "the claim, and that the cluster answered"
    assert not [each for each in queries if "monitoring_run" in each["sql"] or "monitoring_checkpoint" in each["sql"]]


@pytest.mark.parametrize("what", ["first sight", "a new checkpoint each"])
def test_the_number_of_statements_does_not_grow_with_the_jobs(engine, watch, poll, what):
    counts = []
    for jobs in (3, 40):
        Cluster.objects.update(enabled=False)
        engine.jobs.clear()
        watch(engine)
        started = [engine.job(name=f"job-{number}") for number in range(jobs)]
        for job in started:
            job.add(1)
        if what != "first sight":
            poll()
            for job in started:
                job.add(2)
                job.checkpoints[0].discarded = True
        with CaptureQueriesContext(connection) as queries:
            poll()
        assert Checkpoint.objects.filter(run__job__cluster__enabled=True, final=True).count() >= jobs
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_old_jobs_are_read_only_once(engine, cluster, poll):
    for number in range(30):
        engine.job(name=f"old-{number}", state="FINISHED", ended=1_795_233_300_000).add(1)
    live = engine.job()
    poll()
    assert Run.objects.filter(final_read_done=True).count() == 30
    for worker in (0, 1):  # the other worker has no cache
        poll.clock += timedelta(seconds=20)
        engine.asked.clear()
        with CaptureQueriesContext(connection) as queries:
            poll.tick(worker)
        assert engine.asked == ["/jobs/overview", f"/jobs/{live.id}/checkpoints"]
        assert len(queries) < 20


def test_live_jobs_are_read_before_old_ones(engine, cluster, poll):
    old = [engine.job(name=f"old-{number}", state="FINISHED", ended=1_795_233_300_000) for number in range(30)]
    live = engine.job()
    poll()
    asked = [path for path in engine.asked if path.endswith("/checkpoints")]
    # Eight requests run in parallel, in any order.
    assert asked.index(f"/jobs/{live.id}/checkpoints") < 8
    assert len(asked) == len(old) + 1


def test_the_length_of_the_history_is_configured_or_observed(engine, cluster, poll):
    engine.instead["/jobmanager/config"] = [{"key": "web.checkpoints.history", "value": "25"}]
    job = engine.job(kept=5)
    poll()
    cluster.refresh_from_db()
    assert cluster.history_length == 25
    job.add(*range(1, 5))
    poll()
    cluster.refresh_from_db()
    assert cluster.history_length == 25, "nothing was forgotten yet"
    job.add(*range(5, 8))
    poll()
    cluster.refresh_from_db()
    assert cluster.history_length == 5


@pytest.mark.parametrize(
    "answer", ["<html>", "{}", '[{"key": "web.checkpoints.history", "value": "many"}]', '[{"key": 7}]']
)
def test_an_empty_configuration_does_not_stop_a_poll(engine, cluster, poll, answer):
    engine.instead["/jobmanager/config"] = answer
    engine.job().add(1)
    poll()
    cluster.refresh_from_db()
    assert (cluster.reachable, Checkpoint.objects.count()) == (True, 1)
