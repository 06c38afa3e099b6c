"""Reads of storage have a time limit, and the number of hanging reads is limited."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from monitoring.savepoints.storage_threads import StorageSilent, StorageThreads, TimeLimit
from tests.waiting import eventually

LONG = 60.0


@pytest.fixture
def answered() -> Iterator[threading.Event]:
    """Yield an event. Reads hang until it is set."""
    event = threading.Event()
    yield event
    event.set()


def hang(threads: StorageThreads, answered: threading.Event, root: str = "/a") -> None:
    with pytest.raises(StorageSilent):
        threads.run(root, f"{root}/chk", lambda: answered.wait(LONG), TimeLimit(0.01))


def storage_accesses() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("storage access /a/")}


def test_result_or_error_of_the_read_is_passed_on() -> None:
    threads = StorageThreads()
    assert threads.run("/a", "/a/chk", lambda: 7, TimeLimit(LONG)) == 7
    for error in (FileNotFoundError("gone"), TimeoutError("the storage's own")):
        with pytest.raises(type(error), match=str(error)):
            threads.run("/a", "/a/chk", lambda error=error: (_ for _ in ()).throw(error), TimeLimit(LONG))  # type: ignore[misc]
    assert threads.hanging("/a") == 0


def test_silent_storage_is_named_with_the_time_waited(answered: threading.Event) -> None:
    with pytest.raises(StorageSilent) as silent:
        StorageThreads().run("/a", "s3://b/chk-4", lambda: answered.wait(LONG), TimeLimit(0.75))
    assert str(silent.value) == "s3://b/chk-4 could not be checked within 0.75 s: its storage does not respond"
    assert silent.value.place == "s3://b/chk-4"
    assert 0.1 < silent.value.waited_s < LONG


def test_waited_time_excludes_what_earlier_accesses_used(answered: threading.Event) -> None:
    threads, time_limit = StorageThreads(), TimeLimit(0.75)
    for waited in (True, False):
        with pytest.raises(StorageSilent) as silent:
            threads.run("/a", "/a/chk", lambda: answered.wait(LONG), time_limit)
        assert bool(round(silent.value.waited_s, 1)) is waited


def test_accesses_fail_at_once_while_all_threads_hang(answered: threading.Event) -> None:
    threads = StorageThreads(places=2)
    hang(threads, answered)
    hang(threads, answered)
    assert threads.hanging("/a") == 2
    before = storage_accesses()
    began = time.monotonic()
    with pytest.raises(StorageSilent) as silent:
        threads.run("/a", "/a/chk", lambda: 7, TimeLimit(LONG))
    assert silent.value.waited_s < LONG / 2
    assert time.monotonic() - began < LONG / 2
    assert storage_accesses() == before
    answered.set()
    eventually("they come back", lambda: threads.hanging("/a") == 0)
    assert threads.run("/a", "/a/chk", lambda: 7, TimeLimit(LONG)) == 7


def test_hanging_root_does_not_delay_another(answered: threading.Event) -> None:
    threads = StorageThreads(places=1)
    hang(threads, answered)
    assert threads.run("/b", "/b/chk", lambda: 7, TimeLimit(LONG)) == 7


def test_access_waits_for_a_free_thread(answered: threading.Event) -> None:
    threads, entered = StorageThreads(places=1), threading.Event()

    def slow() -> bool:
        entered.set()
        return answered.wait(LONG)

    first = threading.Thread(target=threads.run, args=("/a", "/a/1", slow, TimeLimit(LONG)))
    first.start()
    assert entered.wait(LONG)
    with pytest.raises(StorageSilent):
        threads.run("/a", "/a/2", lambda: 7, TimeLimit(0.05))  # all threads are in use
    threading.Timer(0.05, answered.set).start()
    assert threads.run("/a", "/a/2", lambda: 7, TimeLimit(LONG)) == 7
    first.join(LONG)


def test_accesses_share_a_time_limit() -> None:
    at = [0.0]
    time_limit = TimeLimit(5, lambda: at[0])
    at[0] = 4.5
    assert time_limit.left_s == 0.5
    at[0] = 9
    assert time_limit.left_s == 0
