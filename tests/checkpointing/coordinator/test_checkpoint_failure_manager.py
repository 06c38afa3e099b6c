"""When failed checkpoints fail the job (Flink's G list)."""

from __future__ import annotations

import pytest

from checkpointing.coordinator.ending import CheckpointFailureManager
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.model.checkpoint import CheckpointProperties, RetentionPolicy
from checkpointing.model.configuration import UNLIMITED_FAILURES
from checkpointing.model.messages import CheckpointKind

Reason = CheckpointFailureReason


class Manager:
    def __init__(self, tolerable: int) -> None:
        self.calls: list[str] = []
        self.manager = CheckpointFailureManager(tolerable_failures=tolerable)

    def fail(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason = Reason.CHECKPOINT_DECLINED,
        kind: CheckpointKind = CheckpointKind.CHECKPOINT,
    ) -> None:
        effect = self.manager.handle_failure(
            CheckpointException(reason),
            properties=CheckpointProperties(kind, RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS),
            checkpoint_id=checkpoint_id,
        )
        if effect is not None:
            self.calls.append(effect.message)

    def succeed(self, checkpoint_id: int) -> None:
        self.manager.handle_success(checkpoint_id)


def test_conformance_g01_a_failure_older_than_the_last_success_is_ignored() -> None:
    m = Manager(2)
    m.fail(1)
    m.fail(2)
    m.succeed(2)
    m.fail(1)
    m.fail(3)
    m.fail(4)
    assert m.calls == []


def test_conformance_g02_one_more_than_tolerated_in_a_row_fails_the_job_once() -> None:
    m = Manager(2)
    m.fail(1)
    m.fail(2)
    m.fail(3, Reason.JOB_FAILOVER_REGION)
    assert m.calls == []
    m.fail(4)
    assert len(m.calls) == 1
    assert m.calls[0].startswith("Exceeded checkpoint tolerable failure threshold.")
    assert Reason.CHECKPOINT_DECLINED.message in m.calls[0]


def test_conformance_g03_a_success_breaks_the_row() -> None:
    m = Manager(2)
    m.fail(1, Reason.IO_EXCEPTION)
    m.fail(2)
    m.fail(3, Reason.JOB_FAILOVER_REGION)
    m.succeed(4)
    m.fail(5, Reason.CHECKPOINT_EXPIRED)
    assert m.calls == []
    assert m.manager.num_continuous_failures == 1


def test_conformance_g05_one_id_counts_once_but_each_unknown_one_counts() -> None:
    m = Manager(1)
    for _ in range(5):
        m.fail(1)
    assert m.calls == []

    unknown = Manager(1)
    unknown.fail(-1, Reason.IO_EXCEPTION)
    unknown.fail(-1, Reason.IO_EXCEPTION)
    assert len(unknown.calls) == 1


@pytest.mark.parametrize("kind", [CheckpointKind.SAVEPOINT, CheckpointKind.SYNC_SAVEPOINT])
@pytest.mark.parametrize("reason", list(Reason))
def test_a_failed_savepoint_never_fails_the_job(kind: CheckpointKind, reason: CheckpointFailureReason) -> None:
    """Waymark differs from Flink here (G06, A41): a full savepoint storage must not end a healthy job."""
    m = Manager(0)
    m.fail(1, reason, kind)
    assert m.calls == []
    assert m.manager.num_continuous_failures == 0


def test_an_unlimited_tolerance_never_fails_the_job() -> None:
    m = Manager(UNLIMITED_FAILURES)
    for checkpoint_id in range(1000):
        m.fail(checkpoint_id)
    assert m.calls == []


def test_conformance_g07_failing_the_job_resets_the_count() -> None:
    m = Manager(1)
    m.fail(1)
    m.fail(2)
    m.fail(2)
    assert len(m.calls) == 1
    m.fail(3)
    assert len(m.calls) == 2
    assert m.manager.num_continuous_failures == 0


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(ValueError, match="tolerable_failures: -1"):
        Manager(-1)
