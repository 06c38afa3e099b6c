"""Which drivers may start on a machine, in what order, and why the others wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpointing.jobs.launching.admission import (
    PRIORITY_IS_WORTH_S,
    Decision,
    Demand,
    Lacking,
    LaunchWait,
    Limits,
    Load,
    Waiting,
    decide,
    room_for_spares,
)

GIB = 2**30
ROOM = Limits(memory=100 * GIB, drivers=None, starting=10)


def job(name: str, *, asks: int = 1, priority: int = 0, submitted_ms: int = 0, since_s: float = 600.0) -> Waiting:
    return Waiting(name, Demand(asks * GIB), priority, submitted_ms, since_s)


def lacking(decision: Decision) -> dict[str, Lacking]:
    return {job_id: wait.lacking for job_id, wait in decision.waits.items()}


def test_all_start_while_there_is_room() -> None:
    decision = decide([job("a"), job("b")], Load(), ROOM)

    assert decision == Decision(("a", "b"), {})


def test_no_more_than_the_limit_start_at_a_time() -> None:
    decision = decide([job("a"), job("b"), job("c")], Load(starting=1), replace(ROOM, starting=2))

    assert decision.admitted == ("a",)
    assert decision.waits["b"] == LaunchWait(Lacking.STARTS, 1, 2, GIB, free=0, limit=2)
    assert decision.waits["c"].position == 2


def test_used_memory_and_that_of_recently_admitted_jobs_count() -> None:
    load = Load(memory=5 * GIB, drivers=5)

    decision = decide([job("a", asks=2), job("b", asks=2)], load, replace(ROOM, memory=8 * GIB))

    assert decision.admitted == ("a",)
    assert decision.waits["b"] == LaunchWait(Lacking.MEMORY, 1, 1, 2 * GIB, free=1 * GIB, limit=8 * GIB)


def test_the_number_of_drivers_is_limited() -> None:
    decision = decide([job("a"), job("b")], Load(drivers=2), replace(ROOM, drivers=3))

    assert decision.admitted == ("a",)
    assert decision.waits["b"] == LaunchWait(Lacking.DRIVERS, 1, 1, GIB, free=0, limit=3)


def test_a_limit_of_none_admits_any_job() -> None:
    decision = decide([job("a", asks=10**6)], Load(10**18, 10**6), Limits(None, None, 1))

    assert decision.admitted == ("a",)


def test_load_beyond_the_limits_shows_no_room_instead_of_less_than_none() -> None:
    """Adopted drivers are not checked against the limits, so the load may exceed them."""
    decision = decide([job("a")], Load(memory=200 * GIB, drivers=9), replace(ROOM, drivers=3))

    assert decision.waits["a"].free == 0


def test_a_higher_priority_is_first_and_then_the_earlier_submission() -> None:
    jobs = [job("old", submitted_ms=1), job("new", submitted_ms=2), job("urgent", priority=1, submitted_ms=3)]

    decision = decide(reversed(jobs), Load(), ROOM)

    assert decision.admitted == ("urgent", "old", "new")


def test_a_negative_priority_is_last() -> None:
    decision = decide([job("late", priority=-1, submitted_ms=1), job("usual", submitted_ms=2)], Load(), ROOM)

    assert decision.admitted == ("usual", "late")


def test_a_job_that_waits_longer_than_the_priority_is_worth_is_first() -> None:
    """No job waits for ever, even if jobs of a higher priority keep arriving."""
    waits_long = job("waits long", since_s=0.0)
    just_before = job("urgent, just before", priority=2, since_s=2 * PRIORITY_IS_WORTH_S - 60)
    after = job("urgent, after", priority=2, since_s=2 * PRIORITY_IS_WORTH_S + 60)

    decision = decide([after, waits_long, just_before], Load(), ROOM)

    assert decision.admitted == ("urgent, just before", "waits long", "urgent, after")


def test_no_job_passes_one_that_waits_for_memory() -> None:
    """Otherwise a stream of small jobs would keep a large job from ever getting enough memory."""
    jobs = [job("large", asks=4, submitted_ms=1), job("small", submitted_ms=2)]

    decision = decide(jobs, Load(memory=5 * GIB), replace(ROOM, memory=8 * GIB))

    assert decision.admitted == ()
    assert lacking(decision) == {"large": Lacking.MEMORY, "small": Lacking.TURN}


def test_a_restart_has_its_memory_and_passes_jobs_that_wait_for_some() -> None:
    jobs = [job("new", asks=4, submitted_ms=1), replace(job("restarts", asks=3, submitted_ms=2), has_place=True)]

    decision = decide(jobs, Load(memory=8 * GIB, drivers=2), replace(ROOM, memory=8 * GIB, drivers=2))

    assert decision.admitted == ("restarts",)


def test_a_restart_waits_for_other_starts_as_a_first_start_does() -> None:
    decision = decide([replace(job("restarts"), has_place=True)], Load(starting=10), ROOM)

    assert lacking(decision) == {"restarts": Lacking.STARTS}


def test_a_job_that_is_too_large_for_the_machine_delays_no_other_job() -> None:
    """The job was submitted on a larger machine, and the next leader may be large enough again."""
    jobs = [job("huge", asks=101, priority=9), job("usual")]

    decision = decide(jobs, Load(memory=GIB), ROOM)

    assert decision.admitted == ("usual",)
    assert decision.waits["huge"] == LaunchWait(Lacking.MACHINE, 1, 1, 101 * GIB, free=98 * GIB, limit=100 * GIB)


@pytest.mark.parametrize(("least_priority", "admitted"), [(float("inf"), ()), (5, ("urgent",)), (6, ())])
def test_lower_priorities_wait_for_the_recovery_of_higher_ones(
    least_priority: float, admitted: tuple[str, ...]
) -> None:
    jobs = [job("urgent", priority=5), job("usual")]

    decision = decide(jobs, Load(), ROOM, least_priority=least_priority)

    assert decision.admitted == admitted
    assert lacking(decision)["usual"] is Lacking.RECOVERY


def test_spares_get_the_memory_left_after_all_waiting_jobs_started() -> None:
    limits = Limits(memory=10 * GIB, drivers=4, starting=1)
    jobs = [job("a", asks=2), job("huge", asks=11), replace(job("restarts", asks=3), has_place=True)]

    room = room_for_spares(jobs, Load(memory=5 * GIB, drivers=2), limits)

    assert (room.memory, room.drivers) == (3 * GIB, 1)


def test_spares_have_no_room_on_a_machine_that_is_full() -> None:
    room = room_for_spares([], Load(memory=200 * GIB, drivers=9), replace(ROOM, drivers=5))

    assert (room.memory, room.drivers) == (0, 0)
