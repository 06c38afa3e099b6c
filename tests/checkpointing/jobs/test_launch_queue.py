"""The order in which drivers start, over several runs of jobs and terms of leaders, on a manual clock."""

from __future__ import annotations

import asyncio

import pytest

from checkpointing.clock import ManualClock
from checkpointing.jobs.launch_queue import LaunchQueue
from checkpointing.jobs.launching.admission import Demand, Lacking, Limits, Load
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.job_graph import JobGraph
from tests.checkpointing.doubles import ManualTimer

GIB = 2**30
START_LIMIT_S, RECOVERY_LIMIT_S = 120.0, 30.0


class Launcher:
    """A launcher with only the methods that the queue calls. `elsewhere` has jobs whose drivers run elsewhere."""

    def __init__(self) -> None:
        self.elsewhere: set[str] = set()
        self.spare_load = Load()
        self.room: Load | None = None

    def demand_of(self, graph: JobGraph) -> Demand | None:
        text = graph.configuration.get("waymark.driver.memory", "1")
        if not text.isdigit():
            raise InvalidConfiguration("waymark.driver.memory", text, "gigabytes")
        return None if graph.job_id in self.elsewhere else Demand(int(text) * GIB)

    def limit_spares(self, room: Load) -> None:
        self.room = room


class Machine:
    """A launch queue and the jobs that wait in it."""

    def __init__(self, limits: Limits) -> None:
        self.clock = ManualClock()
        self.timer = ManualTimer(self.clock)
        self.launcher = Launcher()
        self.queue = LaunchQueue(
            limits,
            self.launcher,  # type: ignore[arg-type]
            self.clock,
            self.timer,
            start_limit_s=START_LIMIT_S,
            recovery_limit_s=RECOVERY_LIMIT_S,
        )
        self.started: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def enter(self, *graphs: JobGraph) -> None:
        for graph in graphs:
            self.tasks[graph.job_id] = asyncio.create_task(self._enter(graph))
        await self.settle()

    async def _enter(self, graph: JobGraph) -> None:
        await self.queue.wait_for_turn(graph)
        self.started.append(graph.job_id)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def runs(self, job_id: str) -> None:
        self.queue.started(job_id)
        await self.settle()

    async def leaves(self, job_id: str) -> None:
        self.queue.left(job_id)
        await self.settle()

    async def cancel(self, job_id: str) -> None:
        self.tasks[job_id].cancel()
        await self.settle()

    async def pass_time(self, seconds: float) -> None:
        self.timer.advance(seconds)
        await self.settle()

    def lacks(self, job_id: str) -> Lacking | None:
        found = self.queue.wait_of(job_id)
        return None if found is None else found[0].lacking


def machine(*, memory: int | None = 100, drivers: int | None = None, starting: int = 10) -> Machine:
    return Machine(Limits(None if memory is None else memory * GIB, drivers, starting))


def graph(job_id: str, submitted_ms: int = 1, **settings: str) -> JobGraph:
    configuration = {f"waymark.{name.replace('_', '.')}": value for name, value in settings.items()}
    return JobGraph(job_id, job_id, "jar", "p:main", configuration=configuration, submitted_ms=submitted_ms)


async def test_a_start_ends_when_the_driver_runs_and_the_next_one_begins() -> None:
    here = machine(starting=1)
    await here.enter(graph("a", 1), graph("b", 2))
    assert here.started == ["a"]
    assert here.lacks("b") is Lacking.STARTS

    await here.runs("a")

    assert here.started == ["a", "b"]
    assert here.queue.wait_of("b") is None


async def test_a_waiting_job_shows_why_and_since_when() -> None:
    here = machine(memory=4)
    await here.enter(graph("large", driver_memory="3"))
    await here.pass_time(7)
    await here.enter(graph("waits", driver_memory="2"), graph("behind", 2, driver_memory="1"))

    found = here.queue.wait_of("waits")
    await here.pass_time(60)

    assert found is not None
    wait, since_ms = found
    assert (wait.lacking, wait.asked, wait.free, wait.limit) == (Lacking.MEMORY, 2 * GIB, GIB, 4 * GIB)
    assert (wait.position, wait.length) == (1, 2)
    assert since_ms == here.clock.now_ms() - 60_000
    assert here.lacks("behind") is Lacking.TURN


async def test_a_job_that_ends_frees_its_memory_for_the_next() -> None:
    here = machine(memory=4)
    await here.enter(graph("first", driver_memory="3"), graph("second", 2, driver_memory="3"))
    await here.runs("first")
    assert here.lacks("second") is Lacking.MEMORY

    await here.leaves("first")

    assert here.started == ["first", "second"]


async def test_a_restart_waits_for_no_memory() -> None:
    here = machine(memory=4, starting=1)
    await here.enter(graph("a", driver_memory="4"))
    await here.runs("a")
    await here.enter(graph("waits", 0, driver_memory="4"))

    await here.enter(graph("a", driver_memory="4"))

    assert here.started == ["a", "a"]


async def test_a_failed_start_delays_no_other_job() -> None:
    here = machine(starting=1)
    await here.enter(graph("a", 1), graph("b", 2))

    here.queue.started("a")  # the attempt ended before the job ran
    await here.enter(graph("a", 1))

    assert here.started == ["a", "b"]
    assert here.lacks("a") is Lacking.STARTS


async def test_a_slow_program_counts_as_starting_for_a_limited_time() -> None:
    here = machine(starting=1)
    await here.enter(graph("waits for something", 1), graph("b", 2))

    await here.pass_time(START_LIMIT_S - 2)
    assert here.lacks("b") is Lacking.STARTS
    await here.pass_time(3)

    assert here.started == ["waits for something", "b"]


async def test_a_waiting_job_that_is_cancelled_leaves_the_queue_at_once() -> None:
    here = machine(memory=4)
    await here.enter(graph("runs", driver_memory="3"))
    await here.enter(graph("large", 1, driver_memory="2"), graph("small", 2, driver_memory="1"))
    assert here.lacks("small") is Lacking.TURN

    await here.cancel("large")

    assert here.queue.wait_of("large") is None
    assert here.started == ["runs", "small"]


async def test_a_driver_on_another_machine_neither_waits_nor_counts() -> None:
    here = machine(memory=1, drivers=1, starting=1)
    here.launcher.elsewhere = {"pod"}
    await here.enter(graph("pod"), graph("pod"))
    await here.enter(graph("here"))

    assert here.started == ["pod", "pod", "here"]


async def test_spares_count_and_make_room_for_a_job_that_waits() -> None:
    here = machine(memory=4)
    here.launcher.spare_load = Load(memory=2 * GIB, drivers=1)

    await here.enter(graph("a", driver_memory="3"))
    assert here.lacks("a") is Lacking.MEMORY
    assert here.launcher.room is not None
    assert here.launcher.room.memory == GIB
    here.launcher.spare_load = Load()  # the spare drivers have ended
    await here.pass_time(1)

    assert here.started == ["a"]
    assert here.launcher.room.memory == GIB


# --- a new leader ---


async def test_nothing_starts_before_the_last_leaders_jobs_are_known() -> None:
    here = machine(starting=1)
    here.queue.hold()
    for each in (graph("usual", 1), graph("urgent", 2, priority="5")):
        here.queue.expect(each)
        await here.enter(each)
    assert here.started == []
    assert here.lacks("urgent") is Lacking.RECOVERY

    here.queue.release()
    await here.settle()

    assert here.started == ["urgent"]


async def test_a_job_waits_for_one_of_higher_priority_that_is_still_being_recovered() -> None:
    """The urgent job may still wait for its former driver before it gets a new one."""
    here = machine(starting=1)
    usual, urgent, late = graph("usual"), graph("urgent", priority="5"), graph("late", priority="-1")
    for each in (usual, urgent, late):
        here.queue.expect(each)
    await here.enter(usual)
    assert here.lacks("usual") is Lacking.RECOVERY

    await here.enter(urgent)

    assert here.started == ["urgent"]
    await here.runs("urgent")
    assert here.started == ["urgent", "usual"], "nobody waits for one of lower priority"


@pytest.mark.parametrize("what", ["its driver registers again", "it has ended"])
async def test_other_jobs_stop_waiting_for_a_recovered_job_that_needs_no_start(what: str) -> None:
    here = machine()
    urgent = graph("urgent", priority="5")
    here.queue.expect(urgent)
    await here.enter(graph("usual"))
    assert here.started == []

    await (here.runs("urgent") if what == "its driver registers again" else here.leaves("urgent"))

    assert here.started == ["usual"]


async def test_no_job_waits_for_the_recovery_of_a_job_on_another_machine() -> None:
    """The pod of such a job may wait for a node for an hour."""
    here = machine()
    here.launcher.elsewhere = {"urgent"}
    here.queue.expect(graph("urgent", priority="5"))

    await here.enter(graph("usual"))

    assert here.started == ["usual"]


async def test_a_job_of_another_machine_waits_for_neither_memory_nor_other_jobs() -> None:
    here = machine(memory=1, starting=1)
    here.launcher.elsewhere = {"first", "second"}
    here.queue.hold()
    here.queue.expect(graph("urgent", priority="5"))

    await here.enter(graph("first", driver_memory="50"), graph("second", driver_memory="50"))

    assert here.started == ["first", "second"]
    here.queue.release()
    await here.enter(graph("urgent", priority="5"))
    assert here.started[2:] == ["urgent"], "they have taken nothing of the machine"


async def test_other_jobs_wait_only_a_limited_time_for_a_job_that_cannot_be_recovered() -> None:
    here = machine()
    here.queue.expect(graph("urgent", priority="5"))
    await here.enter(graph("usual"))

    await here.pass_time(RECOVERY_LIMIT_S + 1)

    assert here.started == ["usual"]


async def test_an_adopted_driver_is_never_queued_and_counts() -> None:
    here = machine(memory=4, starting=1)
    adopted = graph("adopted", driver_memory="5")
    here.queue.adopted(adopted)
    await here.runs("adopted")

    await here.enter(graph("new"))

    assert here.lacks("new") is Lacking.MEMORY
    await here.leaves("adopted")
    assert here.started == ["new"]


async def test_a_driver_that_the_last_leader_was_starting_counts_as_starting() -> None:
    here = machine(starting=1)
    here.queue.adopted(graph("half started"))
    await here.enter(graph("new"))
    assert here.lacks("new") is Lacking.STARTS

    await here.runs("half started")

    assert here.started == ["new"]


async def test_other_jobs_stop_waiting_once_an_adopted_driver_registers() -> None:
    here = machine(starting=2)
    urgent = graph("urgent", priority="5")
    here.queue.expect(urgent)
    here.queue.adopted(urgent)
    await here.enter(graph("usual"))
    assert here.lacks("usual") is Lacking.RECOVERY

    here.queue.registered("urgent")
    await here.settle()

    assert here.started == ["usual"]


async def test_a_lost_adopted_driver_restarts_without_waiting() -> None:
    here = machine(memory=4, starting=1)
    lost = graph("lost", driver_memory="4")
    here.queue.adopted(lost)

    await here.enter(lost)

    assert here.started == ["lost"]


async def test_the_next_term_begins_with_an_empty_machine() -> None:
    here = machine(memory=1, starting=1)
    await here.enter(graph("a"))
    here.queue.expect(graph("urgent", priority="9"))
    here.queue.hold()

    here.queue.clear()
    await here.enter(graph("b"))

    assert here.started == ["a", "b"]


# --- refused settings ---


@pytest.mark.parametrize("value", ["high", "1001", "-1001", "1.5", ""])
def test_a_priority_that_is_not_allowed_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"^waymark\.priority: "):
        machine().queue.check(graph("a", priority=value))


def test_a_job_that_requests_more_than_the_machine_has_is_refused() -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        machine(memory=16).queue.check(graph("a", driver_memory="20"))

    assert (refused.value.key, refused.value.value) == ("waymark.driver.memory", "20")
    assert "20.0 GiB" in refused.value.allowed
    assert "16.0 GiB" in refused.value.allowed


def test_a_large_job_on_another_machine_is_not_refused() -> None:
    here = machine(memory=16)
    here.launcher.elsewhere = {"a"}

    here.queue.check(graph("a", driver_memory="20"))


async def test_wrong_settings_of_a_stored_job_do_not_keep_it_from_its_launch() -> None:
    """The launch reports the wrong settings."""
    here = machine()

    await here.enter(graph("old", driver_memory="much", priority="high"))

    assert here.started == ["old"]


# --- many jobs ---


@pytest.mark.parametrize("limit", [1, 4])
async def test_sixty_jobs_of_a_dead_leader_start_in_the_order_of_priority(limit: int) -> None:
    here = machine(memory=None, starting=limit)
    graphs = [graph(f"job {number:02}", 1000 - number, priority=str(number % 3)) for number in range(60)]
    here.queue.hold()
    for each in graphs:
        here.queue.expect(each)
    await here.enter(*graphs[::7], *(each for each in graphs if each not in graphs[::7]))
    here.queue.release()
    await here.settle()

    running: list[str] = []
    while len(running) < 60:
        starting = [job_id for job_id in here.started if job_id not in running]
        assert 0 < len(starting) <= limit
        await here.pass_time(10)
        running.append(starting[0])
        await here.runs(starting[0])

    by_rank = sorted(graphs, key=lambda each: (-int(each.configuration["waymark.priority"]), each.submitted_ms))
    assert here.started == [each.job_id for each in by_rank]
