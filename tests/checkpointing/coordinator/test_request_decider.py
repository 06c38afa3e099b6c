"""Which request runs next (Flink's H list)."""

from __future__ import annotations

from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest, CheckpointRequestDecider, CoordinatorFacts, Decision
from checkpointing.model.checkpoint import CheckpointProperties, RetentionPolicy
from checkpointing.model.messages import CheckpointKind

Reason = CheckpointFailureReason


def request(
    kind: CheckpointKind = CheckpointKind.CHECKPOINT,
    *,
    is_periodic: bool = False,
    forced: bool | None = None,
) -> CheckpointRequest:
    properties = CheckpointProperties(
        kind, RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, forced=kind.is_savepoint if forced is None else forced
    )
    return CheckpointRequest(properties, is_periodic)


def facts(
    *,
    is_triggering: bool = False,
    num_pending: int = 0,
    num_cleaning: int = 0,
    now_ms: float = 0,
    last_completion_ms: float | None = None,
) -> CoordinatorFacts:
    return CoordinatorFacts(is_triggering, num_pending, num_cleaning, now_ms, last_completion_ms)


def decider(max_concurrent: int = 1, min_pause_ms: int = 0, max_queued: int = 1000) -> CheckpointRequestDecider:
    return CheckpointRequestDecider(max_concurrent=max_concurrent, min_pause_ms=min_pause_ms, max_queued=max_queued)


BUSY = facts(is_triggering=True)


def test_conformance_h02_a_request_waits_for_a_free_slot() -> None:
    queue, wanted = decider(), request()
    assert queue.submit(wanted, facts(num_pending=1)) == Decision()
    assert queue.choose(facts(num_pending=0)).chosen is wanted
    assert queue.num_queued == 0


def test_conformance_h03_a_savepoint_that_is_not_forced_waits_too() -> None:
    queue, wanted = decider(), request(CheckpointKind.SAVEPOINT, forced=False)
    assert queue.submit(wanted, facts(num_pending=1)).chosen is None
    assert queue.submit(request(CheckpointKind.SAVEPOINT), facts(num_pending=1)).chosen is not None
    assert queue.choose(facts()).chosen is wanted


def test_conformance_h04_unfinished_cleaning_delays_requests() -> None:
    queue, wanted = decider(max_concurrent=2), request(CheckpointKind.SAVEPOINT)
    assert queue.submit(wanted, facts(num_cleaning=3)).chosen is None
    assert queue.choose(facts(num_cleaning=2)).chosen is wanted


def test_conformance_h07_h08_order_savepoint_forced_user_older() -> None:
    queue = decider()
    expected = [
        request(CheckpointKind.SAVEPOINT),
        request(CheckpointKind.SAVEPOINT, is_periodic=True),
        request(CheckpointKind.SAVEPOINT, forced=False),
        request(),
        request(),
        request(),
        request(is_periodic=True),
    ]
    for wanted in (expected[i] for i in (4, 0, 6, 5, 2, 3, 1)):
        queue.submit(wanted, BUSY)
    chosen = [queue.choose(facts()).chosen for _ in expected]
    assert chosen == expected
    assert queue.choose(facts()) == Decision()


def test_conformance_h09_beyond_the_limit_a_new_request_is_refused() -> None:
    queue = decider(max_queued=2)
    accepted = [request(), request()]
    for wanted in accepted:
        assert queue.submit(wanted, BUSY).rejected == ()
    (rejection,) = queue.submit(request(CheckpointKind.SAVEPOINT), BUSY).rejected
    assert rejection.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS
    assert all(not wanted.future.done() for wanted in accepted)
    assert queue.num_queued == 2


def test_conformance_h10_a_savepoint_displaces_a_queued_periodic_checkpoint() -> None:
    queue, periodic, savepoint = decider(max_queued=1), request(is_periodic=True), request(CheckpointKind.SAVEPOINT)
    queue.submit(periodic, BUSY)
    (rejection,) = queue.submit(savepoint, BUSY).rejected
    assert rejection.request is periodic
    assert queue.choose(facts()).chosen is savepoint


def test_conformance_h12_within_the_pause_a_periodic_request_is_dropped_and_a_manual_one_runs() -> None:
    queue = decider(min_pause_ms=1_000)
    within = facts(now_ms=5_300, last_completion_ms=5_000)

    decision = queue.submit(request(is_periodic=True), within)
    assert decision.chosen is None
    assert decision.postpone_ms == 700
    assert [rejection.reason for rejection in decision.rejected] == [Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS]
    assert queue.num_queued == 0

    manual = request()
    assert queue.submit(manual, within).chosen is manual
    after = facts(now_ms=6_000, last_completion_ms=5_000)
    assert queue.submit(request(is_periodic=True), after).chosen is not None


def test_nothing_is_chosen_while_another_is_being_triggered() -> None:
    queue = decider()
    assert queue.submit(request(CheckpointKind.SAVEPOINT), BUSY) == Decision()


def test_draining_empties_the_queue_and_returns_savepoints_first() -> None:
    queue, checkpoint, savepoint = decider(), request(), request(CheckpointKind.SAVEPOINT)
    queue.submit(checkpoint, BUSY)
    queue.submit(savepoint, BUSY)
    assert queue.drain() == (savepoint, checkpoint)
    assert queue.num_queued == 0


def test_conformance_h16_savepoints_are_never_discarded() -> None:
    for kind in (CheckpointKind.SAVEPOINT, CheckpointKind.SYNC_SAVEPOINT):
        properties = request(kind).properties
        assert not properties.discard_on_subsumed
        assert properties.is_savepoint
