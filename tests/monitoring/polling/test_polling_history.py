"""Rows equal the engine's answers. Data that the engine deletes is kept, and missing data is not invented."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.diagnosis.fact_queries import facts_of_checkpoint
from monitoring.models import (
    Checkpoint,
    CheckpointGap,
    CheckpointStatus,
    Cluster,
    Engine,
    Job,
    OperatorCheckpoint,
    Run,
    RunStateChange,
    Savepoint,
)
from monitoring.polling import observe
from monitoring.polling.rows import CHECKPOINT_COLUMNS, OPERATOR_COLUMNS
from tests.monitoring.polling.conftest import COUNT, SOURCE, FakeCheckpoint, FakeJob


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def everything() -> list[list[dict]]:
    """Return all rows, without the columns that have the times of polls."""
    looked = {"observed_at", "next_read_at"}
    tables = (Job, Run, RunStateChange, Checkpoint, OperatorCheckpoint, CheckpointGap, Savepoint)
    return [
        [
            {name: value for name, value in row.items() if name not in looked}
            for row in table.objects.order_by("pk").values()
        ]
        for table in tables
    ]


def test_rows_equal_the_answers(engine, cluster, poll):
    job = engine.job()
    job.add(1, 2)
    job.add(3, status="FAILED")
    job.add(4, status="IN_PROGRESS")
    poll()

    run = Run.objects.select_related("job").get()
    assert (run.job.name, run.job.cluster_id, run.job.current_run_id, run.number) == ("demo-job", cluster.pk, run.pk, 1)
    assert (run.engine_job_id, run.state, run.started_at, run.ended_at) == (job.id, "RUNNING", at(job.started), None)
    assert [(vertex["name"], vertex["inputs"]) for vertex in run.vertices] == [
        ("Source: gen", []),
        ("count -> Sink: Writer", [SOURCE]),
    ]
    assert run.checkpoint_config["interval"] == 2000
    assert run.counts == {"restored": 0, "total": 4, "in_progress": 1, "completed": 2, "failed": 1}
    assert run.summary["state_size"] == {"min": 1, "max": 2, "avg": 1, "p50": None, "p90": 2.0}

    second, third, fourth = (Checkpoint.objects.get(checkpoint_id=one) for one in (2, 3, 4))
    assert (second.status, second.triggered_at, second.latest_ack_at) == (
        "COMPLETED",
        at(job.checkpoints[1].triggered),
        at(job.checkpoints[1].triggered + 84),
    )
    assert (second.end_to_end_duration, second.checkpointed_size, second.state_size) == (84, 19540, 40000)
    assert (second.alignment_max, second.start_delay_max, second.sync_max, second.async_max) == (12, 31, 4, 8)
    assert second.external_path == f"file:/cp/{job.id}/chk-2"
    assert second.final
    assert (third.failure_message, third.final) == ("Checkpoint expired before completing.", True)
    assert third.failed_at == at(job.checkpoints[2].triggered + 600)
    assert (fourth.status, fourth.final, fourth.latest_ack_at, fourth.end_to_end_duration) == (
        "IN_PROGRESS",
        False,
        None,
        None,
    )

    source, count = second.operators.all()
    assert (source.name, count.name) == ("Source: gen", "count -> Sink: Writer")
    assert (count.subtask_alignment, count.subtask_start_delay) == ([11, 12], [30, 31])
    assert (count.subtask_sync, count.subtask_async, count.subtask_aborted) == ([3, 4], [7, 8], [False, False])
    assert fourth.operators.first().subtask_end_to_end == [80, None]

    cluster.refresh_from_db()
    assert (cluster.version, cluster.engine, cluster.last_error) == ("2.3.0", Engine.FLINK, "")
    assert cluster.last_answer_at == poll.clock
    assert cluster.poll_claimed_until is None


def test_a_second_poll_changes_nothing_and_requests_no_stored_details(engine, cluster, poll):
    job = engine.job()
    job.add(1, 2, 3)
    poll()
    before, engine.asked[:] = everything(), []
    assert poll() == ""
    assert everything() == before
    assert engine.asked == ["/jobs/overview", f"/jobs/{job.id}/checkpoints"]


def test_a_pending_checkpoint_is_followed_to_its_end(engine, cluster, poll):
    job = engine.job()
    pending = job.add(1, status="IN_PROGRESS")
    poll()
    pending.status = "COMPLETED"
    poll()
    row = Checkpoint.objects.get()
    assert (row.status, row.final, row.num_acknowledged_subtasks, row.alignment_max) == ("COMPLETED", True, 4, 12)
    assert row.operators.first().subtask_end_to_end == [80, 81]


def test_a_finished_checkpoint_never_becomes_pending(engine, cluster, poll):
    job = engine.job()
    job.add(1)
    poll()
    job.checkpoints[0].status = "IN_PROGRESS"
    poll()
    assert Checkpoint.objects.get().status == CheckpointStatus.COMPLETED


def test_a_subsumed_checkpoint_is_marked_discarded(engine, cluster, poll):
    job = engine.job()
    job.add(1)
    poll()
    job.checkpoints[0].discarded = True
    job.add(2)
    poll()
    assert dict(Checkpoint.objects.values_list("checkpoint_id", "discarded")) == {1: True, 2: False}


def reported(job_id: str) -> list[tuple[object, ...]]:
    """Return a job's stored checkpoints and operators, without keys and the operators' names and positions."""
    checkpoints = Checkpoint.objects.filter(run__engine_job_id=job_id).order_by("checkpoint_id")
    operators = OperatorCheckpoint.objects.filter(checkpoint__in=checkpoints)
    unnamed = [column for column in OPERATOR_COLUMNS if column not in ("name", "position")]
    return [
        *checkpoints.values_list("checkpoint_id", *CHECKPOINT_COLUMNS),
        *operators.order_by("checkpoint__checkpoint_id", "vertex_id").values_list("vertex_id", *unnamed),
    ]


def test_a_completed_checkpoint_is_stored_from_its_operators_alone(engine, cluster, poll):
    in_full, job = engine.job(name="asked in full"), engine.job(name="asked by operator")
    engine.instead[f"/jobs/{in_full.id}"] = {**in_full.overview(), "vertices": []}
    for each in (in_full, job):
        each.add(1, 2, path="file:/cp")
    poll()
    details = {path.split("/")[2] for path in engine.asked if re.fullmatch(".*/details/[12]", path)}
    assert details == {in_full.id}
    assert reported(job.id) == reported(in_full.id)
    assert len(reported(job.id)) == 2 + 4


def test_an_operator_that_the_job_did_not_name_is_found_in_the_details(engine, cluster, poll):
    job = engine.job()
    vertex = {"id": SOURCE, "name": "Source: gen", "parallelism": 2, "status": "RUNNING"}
    engine.instead[f"/jobs/{job.id}"] = {**job.overview(), "vertices": [vertex]}
    job.add(1)
    poll()
    assert set(OperatorCheckpoint.objects.values_list("vertex_id", flat=True)) == {SOURCE, COUNT}
    assert Checkpoint.objects.get().final
    assert sorted(path.rpartition("/")[2] for path in engine.asked if "/subtasks/" in path) == sorted((SOURCE, COUNT))


def test_figures_that_the_engine_forgot_are_not_requested_forever(engine, cluster, poll):
    engine.job().add(1, forgotten=True)
    poll()
    row = Checkpoint.objects.get()
    assert (row.status, row.final, row.alignment_max, row.operators.count()) == ("COMPLETED", True, None, 0)


def test_figures_that_could_not_be_read_are_read_the_next_time(engine, cluster, poll):
    engine.job().add(1)
    engine.instead[".*/subtasks/.*"] = {"subtasks": "none"}
    poll()
    assert not Checkpoint.objects.get().final
    cluster.refresh_from_db()
    assert "subtasks" in cluster.last_error
    engine.instead.clear()
    poll()
    assert (Checkpoint.objects.get().final, Checkpoint.objects.get().alignment_max) == (True, 12)


def test_checkpoints_that_left_the_history_unseen_are_a_gap(engine, cluster, poll):
    job = engine.job()
    job.add(1, 2, 3)
    poll()
    job.add(*range(4, 30))
    assert "16 checkpoints missed" in poll()
    gap = CheckpointGap.objects.get()
    assert (gap.first_id, gap.last_id) == (4, 19)
    assert sorted(Checkpoint.objects.values_list("checkpoint_id", flat=True)) == [1, 2, 3, *range(20, 30)]
    poll()
    assert CheckpointGap.objects.count() == 1


def test_the_details_of_a_pending_checkpoint_are_not_requested_at_every_tick(engine, cluster, poll):
    job = engine.job()
    since = poll.clock - timedelta(minutes=20)
    pending = job.add(1, status="IN_PROGRESS", triggered=int(since.timestamp() * 1000))
    details = f"/jobs/{job.id}/checkpoints/details/1"
    poll()
    engine.asked.clear()
    for _ in range(10):
        poll()
    assert engine.asked.count(details) <= 3, "every 64 s, and from its 1,280th second every 128 s"
    pending.status = "COMPLETED"
    poll()
    assert Checkpoint.objects.get().final, "its end is seen at the next tick all the same"


def test_a_pending_checkpoint_whose_end_rolled_over_belongs_to_the_gap(engine, cluster, poll):
    job = engine.job()
    job.add(1, 2)
    pending = job.add(3, status="IN_PROGRESS")
    poll()
    pending.status = "COMPLETED"
    job.add(*range(4, 30))
    poll()
    gap = CheckpointGap.objects.get()
    assert (gap.first_id, gap.last_id) == (3, 19)
    assert not Checkpoint.objects.filter(checkpoint_id=3).exists()


def test_checkpoints_of_a_replaced_job_manager_are_a_gap_also_with_an_empty_history(engine, cluster, poll):
    job = engine.job()
    job.add(1, 2, 3)
    poll()
    job.checkpoints.clear()  # checkpoints 4 to 8 were never polled
    restored = {"id": 8, "is_savepoint": False, "external_path": "file:/cp/8"}
    job.restored = {**restored, "restore_timestamp": job.started + 60_000}
    job.started += 60_000
    poll()
    assert not CheckpointGap.objects.exists()
    job.add(9)
    poll()
    job.add(10, 11)
    poll()
    assert list(CheckpointGap.objects.values_list("first_id", "last_id")) == [(4, 8)]


def test_an_id_missing_inside_the_history_is_not_a_gap(engine, cluster, poll):
    job = engine.job()
    job.add(1, 2)
    poll()
    job.add(5, 6)
    poll()
    assert not CheckpointGap.objects.exists()


def test_a_job_watched_from_its_middle_has_no_gap(engine, cluster, poll):
    engine.job(counted_before=500, started=1_600_000_000_000).add(*range(501, 520))
    poll()
    assert not CheckpointGap.objects.exists()
    assert Checkpoint.objects.count() == 10


def test_a_job_manager_failover_keeps_the_run_and_fails_pending_checkpoints(engine, cluster, poll):
    job = engine.job()
    job.add(*range(1, 12))
    job.add(12, status="IN_PROGRESS")
    poll()
    job.checkpoints.clear()
    job.restored = {
        "id": 11,
        "restore_timestamp": job.started + 60_000,
        "is_savepoint": False,
        "external_path": "file:/cp/11",
    }
    job.started += 60_000
    job.add(13)
    poll()
    run = Run.objects.get()
    assert (run.restored_checkpoint_id, run.counts["total"]) == (11, 1)
    assert run.started_at == at(job.started - 60_000), "the submission, not the failover"
    lost = Checkpoint.objects.get(checkpoint_id=12)
    assert (lost.status, lost.failed_at, lost.final) == ("FAILED", poll.clock, True)
    assert "job manager was replaced" in lost.failure_message
    assert not CheckpointGap.objects.exists()


def test_a_diagnosis_has_the_job_graph(engine, cluster, poll):
    engine.job().add(1)
    poll()
    checkpoint = Checkpoint.objects.select_related("run__job__cluster").get()
    facts = facts_of_checkpoint(checkpoint, checkpoint.operators.all(), poll.clock)
    assert [(each.vertex, each.inputs) for each in facts.checkpoint.operators] == [(SOURCE, []), (COUNT, [SOURCE])]


def test_checkpoint_ids_that_begin_again_are_another_run(engine, cluster, poll):
    job = engine.job(id="0" * 32)
    job.add(1, 2, 3)
    poll()
    job.checkpoints.clear()
    job.started += 3_600_000
    job.add(1, triggered=job.started)
    assert "started a new run under the same job ID" in poll()
    old, new = Run.objects.order_by("number")
    assert (old.superseded, old.state, old.checkpoints.count()) == (True, "LOST", 3)
    assert (new.superseded, new.state, new.checkpoints.count()) == (False, "RUNNING", 1)
    assert Job.objects.get().current_run_id == new.pk
    poll()
    assert new.checkpoints.get().final
    assert Run.objects.count() == 2


def test_checkpoints_of_a_redeployed_job_move_from_the_old_run_to_the_new_one(engine, cluster, poll):
    """The old run had no checkpoint 2, so the new run's checkpoint 2 looked like the old run's."""
    job = engine.job(id="0" * 32)
    job.add(1, 3)
    poll()
    job.checkpoints.clear()
    job.started += 3_600_000
    job.add(2, triggered=job.started + 1000)
    poll()
    job.add(3, triggered=job.started + 3000)
    poll()
    poll()
    old, new = Run.objects.order_by("number")
    assert sorted(old.checkpoints.values_list("checkpoint_id", flat=True)) == [1, 3]
    assert sorted(new.checkpoints.values_list("checkpoint_id", flat=True)) == [2, 3]
    assert all(checkpoint.operators.count() == 2 for checkpoint in new.checkpoints.all())
    assert not CheckpointGap.objects.filter(run=new).exists()


@pytest.mark.parametrize("state", ["FINISHED", "CANCELED", "FAILED"])
def test_a_job_that_ended_and_was_redeployed_under_its_id_is_another_run(engine, cluster, poll, state):
    """In application mode, the job ID is always the same. The final savepoint of the old run causes no gap."""
    job = engine.job(id="0" * 32)
    job.add(1, 2)
    poll()
    job.add(3, is_savepoint=True)
    job.state, job.ended = state, job.started + 60_000
    poll()
    job.restored = restored_from(job, 3, is_savepoint=True)
    job.checkpoints.clear()
    job.state, job.started, job.ended = "RUNNING", job.started + 120_000, -1
    job.add(4, triggered=job.started + 3000)
    poll()
    old, new = Run.objects.order_by("number")
    assert (old.state, old.superseded, old.ended_at) == (state, True, at(job.started - 60_000))
    assert (new.state, new.started_at, new.restored_checkpoint_id) == ("RUNNING", at(job.started), 3)
    assert sorted(old.checkpoints.values_list("checkpoint_id", flat=True)) == [1, 2, 3]
    assert [each.checkpoint_id for each in new.checkpoints.all()] == [4]
    assert not CheckpointGap.objects.exists()
    assert Job.objects.get().current_run_id == new.pk
    poll()
    assert Run.objects.count() == 2


def test_a_job_redeployed_from_a_savepoint_during_an_outage_is_another_run(engine, cluster, poll):
    """A fail-over of Flink restores a checkpoint, or the savepoint from which the run started."""
    job = engine.job(id="0" * 32)
    job.restored = restored_from(job, 1, is_savepoint=True)
    job.add(2)
    poll()
    for restored in (job.restored, restored_from(job, 2)):  # simulates two fail-overs
        job.started += 60_000
        job.restored = restored
        poll()
    assert Run.objects.count() == 1
    job.restored = restored_from(job, 3, is_savepoint=True)
    job.started += 60_000
    job.checkpoints.clear()
    job.add(4, triggered=job.started + 1000)
    poll()
    old, new = Run.objects.order_by("number")
    assert (old.state, old.superseded, new.state) == ("LOST", True, "RUNNING")
    assert [each.checkpoint_id for each in new.checkpoints.all()] == [4]


def restored_from(job: FakeJob, checkpoint_id: int, *, is_savepoint: bool = False) -> dict[str, object]:
    path, at_ms = f"file:/cp/{checkpoint_id}", job.started + 1000
    return {"id": checkpoint_id, "restore_timestamp": at_ms, "is_savepoint": is_savepoint, "external_path": path}


@pytest.mark.parametrize("seen_before", [False, True])
def test_the_number_of_queries_does_not_grow_with_the_history(engine, watch, poll, seen_before):
    counts = []
    for kept in (10, 200):
        Cluster.objects.update(enabled=False)
        engine.jobs.clear()
        cluster = watch(engine)
        job = engine.job(kept=kept)
        if seen_before:
            job.add(1)
            poll()
        job.add(*range(2, kept + 1))
        with CaptureQueriesContext(
            connection,
        ) as queries:
            poll()
        assert Checkpoint.objects.filter(run__job__cluster=cluster).count() >= kept - 1
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_long_history_is_read_over_several_ticks(engine, cluster, poll, monkeypatch):
    monkeypatch.setattr(observe, "READINGS_PER_FLIGHT", 20)
    engine.job(kept=50).add(*range(1, 51))
    poll()
    read = Checkpoint.objects.filter(final=True).values_list("checkpoint_id", flat=True)
    assert sorted(read) == list(range(31, 51)), "the newest first"
    poll()
    poll()
    assert Checkpoint.objects.filter(final=True).count() == 50


def row_versions() -> dict[int, int]:
    """Return PostgreSQL's version number of each row. It changes with every write, even of the same values."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT checkpoint_id, xmin::text::bigint FROM monitoring_checkpoint")
        return dict(cursor.fetchall())


def test_only_missing_figures_are_requested_and_stored(engine, cluster, poll, monkeypatch):
    monkeypatch.setattr(observe, "READINGS_PER_FLIGHT", 2)
    job = engine.job()
    job.add(*range(1, 7))
    poll()
    before, engine.asked[:] = row_versions(), []
    poll(after_s=1)
    assert {path.split("/")[5] for path in engine.asked if "/details/" in path} == {"4", "3"}
    assert f"/jobs/{job.id}/checkpoints" not in engine.asked, "what it lists was read a moment ago"
    after = row_versions()
    assert {one for one in after if after[one] != before[one]} == {3, 4}


def test_a_discarded_checkpoint_remains_discarded_when_its_figures_arrive_late(engine, cluster, poll, monkeypatch):
    """The engine may cache the details longer than the list."""
    monkeypatch.setattr(observe, "READINGS_PER_FLIGHT", 1)
    job = engine.job()
    job.add(1, discarded=True)
    job.add(2)
    poll()
    engine.instead[".*/details/1"] = {**FakeCheckpoint(1).stats(job), "tasks": {}}
    poll()
    row = Checkpoint.objects.get(checkpoint_id=1)
    assert (row.final, row.discarded) == (True, True)


def test_a_job_without_checkpointing_is_watched_all_the_same(engine, cluster, poll):
    engine.job(checkpointing=False)
    poll()
    cluster.refresh_from_db()
    assert (Run.objects.get().state, cluster.last_error) == ("RUNNING", "")


def test_periodic_checkpoints_switched_off_have_no_interval(engine, cluster, poll):
    engine.job(interval=2**63 - 1)
    poll()
    assert Run.objects.get().checkpoint_config["interval"] is None


def test_unknown_details_are_requested_only_while_they_are_in_the_history(engine, cluster, poll):
    job = engine.job()
    job.add(1)
    engine.instead[".*/details/1(/.*)?"] = {"id": "one"}
    poll()
    row = Checkpoint.objects.get()
    assert (row.status, row.final) == ("COMPLETED", False)
    job.add(*range(2, 20))
    poll()
    row.refresh_from_db()
    assert (row.status, row.final, row.alignment_max) == ("COMPLETED", True, None)


def test_a_completed_checkpoint_does_not_change_its_status(engine, cluster, poll):
    """The metrics of the checkpoint were not read yet when the engine reported another status."""
    job = engine.job()
    job.add(1)
    engine.refused[f"/jobs/{job.id}/checkpoints/details/1/subtasks/{SOURCE}"] = (500, "busy")
    poll()
    before = Checkpoint.objects.values().get()
    assert (before["status"], before["final"]) == ("COMPLETED", False)
    engine.refused.clear()
    job.checkpoints[0].status = "FAILED"
    poll()
    assert Checkpoint.objects.values().get() == before
