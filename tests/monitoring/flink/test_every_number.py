"""Waymark's database has exactly the numbers that a real Flink shows for each checkpoint."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

import pytest
from django.utils import timezone

from monitoring.engine.operations import Done, Failed
from monitoring.models import Checkpoint, CheckpointGap, Cluster, Job, Run, Savepoint, SavepointOrigin
from monitoring.polling.poller import Poller
from monitoring.polling.service import SERVE_LIMIT_S
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.jobs import CountJobs
from tests.monitoring.flink.record import Recording, expected_checkpoint, expected_operators, recording
from tests.profile import PROFILE
from tests.waiting import eventually

SECONDS = PROFILE.flink_s  # how long a checkpoint is taken every second
DECLINED = 3
NAME = "every number"
_DECLINED = "Asynchronous task checkpoint failed."
_EXPIRED = "Checkpoint expired before completing."

T = TypeVar("T")

pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.timeout(SECONDS + 900)]


class Beat:
    """A poller that runs while the test waits for a condition."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller

    def until(self, what: str, condition: Callable[[], T]) -> T:
        def polled() -> T:
            self._poller.start_due()
            self._poller.serve(SERVE_LIMIT_S)
            return condition()

        return eventually(what, polled, limit_s=SECONDS + 120)


@pytest.mark.django_db(transaction=True)
def test_every_number_of_two_runs(flink: FlinkCluster, jobs: CountJobs) -> None:
    cluster = Cluster.objects.create(name=f"real {uuid.uuid4().hex}", rest_url=flink.url)
    with recording(flink) as record, Poller(timezone.now) as poller:
        beat = Beat(poller)
        first = jobs.start(NAME, configuration={"execution.checkpointing.timeout": "3 s"})
        _live_through_troubles(flink, jobs, record, beat, first)
        path = _take_savepoint(jobs, beat, first)
        stopped = _stop_with_savepoint(jobs, beat, first)
        second = jobs.start(NAME, savepoint=stopped, checkpoints=2)
        beat.until("the second run is polled", lambda: Checkpoint.objects.filter(run__engine_job_id=second).count() > 2)
        jobs.ask(lambda client: client.cancel(second))
        beat.until("both runs are read to the end", lambda: _read_to_the_end(cluster, first, second))
    record.look()

    job = Job.objects.get(cluster=cluster, name=NAME)
    runs = {run.engine_job_id: run for run in job.runs.order_by("number")}
    assert [(run.number, run.engine_job_id, run.state) for run in runs.values()] == [
        (1, first, "FINISHED"),
        (2, second, "CANCELED"),
    ]
    for job_id in (first, second):
        _assert_same(runs[job_id], record, flink)
    assert not CheckpointGap.objects.filter(run__job=job).exists()
    _assert_linked(runs[first], runs[second], path, stopped)


def _live_through_troubles(flink: FlinkCluster, jobs: CountJobs, record: Recording, beat: Beat, job_id: str) -> None:
    """Take a checkpoint every second, of which some are declined and one expires."""
    over = time.monotonic() + SECONDS
    beat.until("half of the checkpoints", lambda: time.monotonic() > over - SECONDS / 2)
    jobs.turn("decline", on=True)
    beat.until(
        "some were declined", lambda: _failed(record, job_id, "Asynchronous task checkpoint failed.") >= DECLINED
    )
    jobs.turn("decline", on=False)
    jobs.turn("slow", on=True)
    beat.until("one expired", lambda: _failed(record, job_id, _EXPIRED))
    jobs.turn("slow", on=False)
    before = flink.completed(job_id)
    beat.until("they complete again", lambda: time.monotonic() > over and flink.completed(job_id) > before + 2)


def _failed(record: Recording, job_id: str, message: str) -> int:
    seen = list(record.checkpoints.get(job_id, {}).values())
    return sum(each.listed.get("failure_message") == message for each in seen)


def _take_savepoint(jobs: CountJobs, beat: Beat, job_id: str) -> str:
    trigger = uuid.uuid4().hex
    jobs.ask(lambda client: client.trigger_savepoint(job_id, trigger))
    return _saved(jobs, beat, job_id, trigger)


def _stop_with_savepoint(jobs: CountJobs, beat: Beat, job_id: str) -> str:
    trigger = uuid.uuid4().hex
    jobs.ask(lambda client: client.stop_with_savepoint(job_id, trigger))
    path = _saved(jobs, beat, job_id, trigger)
    beat.until("the job has stopped", lambda: jobs.flink.state(job_id) == "FINISHED")
    return path


def _saved(jobs: CountJobs, beat: Beat, job_id: str, trigger: str) -> str:
    def ended() -> Done[str] | Failed | None:
        status = jobs.ask(lambda client: client.savepoint_status(job_id, trigger))
        return status if isinstance(status, Done | Failed) else None

    done = beat.until("the savepoint is complete", ended)
    assert isinstance(done, Done), done
    return done.result


def _read_to_the_end(cluster: Cluster, *job_ids: str) -> bool:
    done = Run.objects.filter(job__cluster=cluster, engine_job_id__in=job_ids, final_read_done=True)
    return done.count() == len(job_ids)


def _assert_same(run: Run, record: Recording, flink: FlinkCluster) -> None:
    recorded = record.checkpoints[run.engine_job_id]
    vertices = flink.get(f"/jobs/{run.engine_job_id}")["vertices"]
    rows = {row.checkpoint_id: row for row in run.checkpoints.prefetch_related("operators")}
    assert sorted(rows) == sorted(recorded)
    for checkpoint_id, row in rows.items():
        expected = expected_checkpoint(recorded[checkpoint_id])
        assert {name: getattr(row, name) for name in expected} == expected, f"checkpoint {checkpoint_id}"
        # Recorder and poller differ if one of them read the checkpoint later, just before it left the history.
        listed_last = {each["id"]: each for each in record.answers[run.engine_job_id]["history"]}
        if checkpoint_id in listed_last:
            assert row.discarded == listed_last[checkpoint_id].get("discarded", False), f"checkpoint {checkpoint_id}"
        assert row.final
        operators = expected_operators(recorded[checkpoint_id], vertices)
        stored = {operator.vertex_id: operator for operator in row.operators.all()}
        assert set(stored) == set(operators)
        for vertex, columns in operators.items():
            assert {name: getattr(stored[vertex], name) for name in columns} == columns, f"{checkpoint_id} of {vertex}"
    answer = record.answers[run.engine_job_id]
    assert run.counts == answer["counts"]
    config = flink.get(f"/jobs/{run.engine_job_id}/checkpoints/config")
    assert run.checkpoint_config == config
    assert [(each["id"], each["name"], each["parallelism"]) for each in run.vertices] == [
        (each["id"], each["name"], each["parallelism"]) for each in vertices
    ]


def _assert_linked(first: Run, second: Run, path: str, stopped: str) -> None:
    """Assert that the job has two runs, and the second one started from the first one's final savepoint."""
    assert (second.restored_path, second.restored_is_savepoint) == (stopped, True)
    last = first.checkpoints.get(external_path=stopped)
    assert (last.checkpoint_type, second.restored_checkpoint_id) == ("SYNC_SAVEPOINT", last.checkpoint_id)
    found = Savepoint.objects.filter(job=first.job, origin=SavepointOrigin.ADOPTED).order_by("requested_at")
    assert [(each.path, each.run, each.stops_job) for each in found] == [(path, first, False), (stopped, first, True)]
    assert second.job.current_run == second
