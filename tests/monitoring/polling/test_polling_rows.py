"""Reports of tasks about an already failed checkpoint are stored (they occur in Flink 2.3 and 1.20)."""

from __future__ import annotations

from datetime import timedelta

from monitoring.models import Checkpoint, OperatorCheckpoint
from monitoring.polling.history import LATE_REPORTS
from tests.monitoring.polling.conftest import FakeEngine, Workers


def test_a_failed_checkpoint_is_read_again_until_its_tasks_are_done_with_it(
    engine: FakeEngine, cluster: object, poll: Workers
) -> None:
    job = engine.job()
    expired = job.add(1, status="FAILED", triggered=_ms(poll))
    poll()
    row = Checkpoint.objects.get()
    assert (row.status, row.final, row.num_acknowledged_subtasks, row.sync_max) == ("FAILED", False, 1, 3)

    expired.acknowledged_late = True
    poll()

    row.refresh_from_db()
    assert (row.status, row.final, row.num_acknowledged_subtasks, row.sync_max) == ("FAILED", True, 4, 4)


def test_stored_subtasks_remain_when_the_engine_forgets_them(
    engine: FakeEngine, cluster: object, poll: Workers
) -> None:
    expired = engine.job().add(1, status="FAILED", triggered=_ms(poll))
    poll()
    before = [each.subtask_sync for each in OperatorCheckpoint.objects.order_by("position")]
    assert any(before[0])
    expired.subtasks_forgotten = True
    poll()
    assert [each.subtask_sync for each in OperatorCheckpoint.objects.order_by("position")] == before


def test_subtasks_that_were_missing_for_a_moment_are_requested_again(
    engine: FakeEngine, cluster: object, poll: Workers
) -> None:
    done = engine.job().add(1)
    done.subtasks_forgotten = True
    poll()
    row = Checkpoint.objects.get()
    assert (row.status, row.final) == ("COMPLETED", False)
    done.subtasks_forgotten = False
    poll()
    row.refresh_from_db()
    assert (row.final, row.sync_max) == (True, 4)


def test_a_task_that_never_reports_is_awaited_for_a_limited_time(
    engine: FakeEngine, cluster: object, poll: Workers
) -> None:
    engine.job().add(1, status="FAILED", triggered=_ms(poll))
    poll()
    assert not Checkpoint.objects.get().final
    poll(LATE_REPORTS / timedelta(seconds=1))
    assert Checkpoint.objects.get().final


def test_checkpoints_of_an_ended_job_become_final(engine: FakeEngine, cluster: object, poll: Workers) -> None:
    job = engine.job()
    job.add(1, status="FAILED", triggered=_ms(poll))
    poll()
    job.state, job.ended = "FAILED", _ms(poll)
    poll()
    assert Checkpoint.objects.get().final


def _ms(poll: Workers) -> int:
    """Return the current time in the engine's format, epoch milliseconds."""
    return int(poll.clock.timestamp() * 1000)
