"""Work on several threads that may hang: ordered results, the first error at once, and progress of all threads."""

from __future__ import annotations

import threading

import pytest

from checkpointing.daemon_threads import in_daemon_thread, map_in_daemon_threads, progressed

LONG_S = 60.0


def test_results_are_in_the_order_of_the_items() -> None:
    assert map_in_daemon_threads(lambda item: item * item, list(range(50)), 4, "it") == [n * n for n in range(50)]
    assert map_in_daemon_threads(str, [], 4, "it") == []


def test_no_more_threads_run_than_are_allowed() -> None:
    both = threading.Barrier(2, timeout=LONG_S)
    names: set[str] = set()

    def note(_: int) -> None:
        both.wait()
        names.add(str(threading.get_ident()))

    map_in_daemon_threads(note, list(range(10)), 2, "it")
    assert len(names) == 2


def test_an_error_is_raised_at_once_even_if_another_item_hangs_and_ends_the_rest() -> None:
    answers, hangs, begun = threading.Event(), threading.Event(), []

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            hangs.set()
            answers.wait(LONG_S)
        else:
            assert hangs.wait(LONG_S)
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 1"):
        map_in_daemon_threads(work, list(range(10)), 2, "it")
    answers.set()
    assert sorted(begun) == [0, 1]


def test_progress_is_reported_only_to_the_listener_of_the_thread() -> None:
    signs: list[str] = []

    def work() -> list[None]:
        return map_in_daemon_threads(lambda _: progressed(), [1, 2, 3], 2, "it")

    in_daemon_thread(work, "mine", lambda: signs.append("mine")).result(LONG_S)
    seen = len(signs)
    assert seen >= 3
    in_daemon_thread(work, "other").result(LONG_S)
    progressed()
    assert len(signs) == seen


def test_threads_do_not_keep_the_process() -> None:
    found = in_daemon_thread(threading.current_thread, "it").result(LONG_S)
    assert (found.daemon, found.name) == (True, "it")
