"""Which files a process of a run gets, one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.distribution import FilesInOrder

LOOP = ["loop.py::test_kill", "loop.py::test_click[chromium]"]
LOOK = ["look.py::test_look[chromium-wide]", "look.py::test_look[chromium-narrow]", "look.py::test_print[chromium]"]
PLAIN = [f"{name}.py::test_{number}" for name in ("a", "b", "c", "d") for number in range(3)]


class Process:
    """Has done a test as soon as it is told to."""

    def __init__(self, name: str, tests: list[str]) -> None:
        self.gateway, self.tests = SimpleNamespace(id=name), tests
        self.queue: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(count: int, tests: list[str]) -> tuple[FilesInOrder, list[Process]]:
    config: Any = SimpleNamespace(
        getvalue=lambda name: ["popen"] * count, option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler, processes = FilesInOrder(config), [Process(f"gw{number}", tests) for number in range(count)]
    for process in processes:
        scheduler.add_node(process)  # type: ignore[arg-type]
        scheduler.add_node_collection(process, tests)  # type: ignore[arg-type]
    scheduler.schedule()
    return scheduler, processes


def run(scheduler: FilesInOrder, process: Process) -> str:
    """One test; its name."""
    done = process.queue.pop(0)
    scheduler.mark_test_complete(process, done)  # type: ignore[arg-type]
    return process.tests[done]


def test_a_process_that_drove_a_browser_takes_nothing_else_and_every_test_is_done_once() -> None:
    tests = PLAIN + LOOP + LOOK
    scheduler, processes = scheduled(3, tests)
    done: dict[str, list[str]] = {process.gateway.id: [] for process in processes}
    while scheduler.has_pending:
        for process in processes:
            if process.queue:
                done[process.gateway.id].append(run(scheduler, process))
    assert done["gw0"] == LOOP + LOOK
    assert sorted(test for each in done.values() for test in each) == sorted(tests)
    assert all(process.shutting_down for process in processes)


def test_when_nothing_else_is_left_the_others_help_with_the_browser() -> None:
    scheduler, [browsers, other] = scheduled(2, PLAIN[:3] + LOOP + LOOK)
    assert browsers.queue == [3, 4]
    assert [run(scheduler, other) for _ in range(6)] == PLAIN[:3] + LOOK
    assert (browsers.shutting_down, other.shutting_down) == (False, True)


def test_a_single_process_ends_with_the_browser() -> None:
    scheduler, [alone] = scheduled(1, LOOP + PLAIN + LOOK)
    assert [run(scheduler, alone) for _ in range(len(PLAIN) + 5)] == PLAIN + LOOP + LOOK


def test_files_that_share_a_cluster_stay_in_one_process() -> None:
    flink = [f"tests/monitoring/flink/test_{name}.py::test_{number}" for name in "ab" for number in range(2)]
    _, (first, second) = scheduled(2, flink + PLAIN)
    assert [first.tests[index] for index in first.queue] == flink
    assert [second.tests[index] for index in second.queue] == PLAIN[:3]
