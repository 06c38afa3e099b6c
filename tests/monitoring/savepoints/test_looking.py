"""Reads of storage have a time limit, and the number of hanging reads is limited."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from monitoring.savepoints.looking import Looks, Patience, StorageSilent
from tests.waiting import eventually

LONG = 60.0


@pytest.fixture
def answered() -> Iterator[threading.Event]:
    """Yield an event. Reads hang until it is set."""
    event = threading.Event()
    yield event
    event.set()


def hang(looks: Looks, answered: threading.Event, root: str = "/a") -> None:
    with pytest.raises(StorageSilent):
        looks.look(root, f"{root}/chk", lambda: answered.wait(LONG), Patience(0.01))


def test_what_was_found_comes_back_and_so_does_what_went_wrong() -> None:
    looks = Looks()
    assert looks.look("/a", "/a/chk", lambda: 7, Patience(LONG)) == 7
    for error in (FileNotFoundError("gone"), TimeoutError("the storage's own")):
        with pytest.raises(type(error), match=str(error)):
            looks.look("/a", "/a/chk", lambda error=error: (_ for _ in ()).throw(error), Patience(LONG))  # type: ignore[misc]
    assert looks.hanging("/a") == 0


def test_silence_names_the_place_and_how_long_it_was_waited_for(answered: threading.Event) -> None:
    with pytest.raises(StorageSilent) as silent:
        Looks().look("/a", "s3://b/chk-4", lambda: answered.wait(LONG), Patience(0.75))
    assert str(silent.value) == "s3://b/chk-4 could not be checked within 0.75 s: its storage does not respond"
    assert silent.value.place == "s3://b/chk-4"
    assert 0.1 < silent.value.waited_s < LONG


def test_what_looks_before_it_took_of_the_patience_was_not_waited_for_it(answered: threading.Event) -> None:
    looks, patience = Looks(), Patience(0.75)
    for waited in (True, False):
        with pytest.raises(StorageSilent) as silent:
            looks.look("/a", "/a/chk", lambda: answered.wait(LONG), patience)
        assert bool(round(silent.value.waited_s, 1)) is waited


def test_so_many_hang_and_then_nobody_waits_until_one_comes_back(answered: threading.Event) -> None:
    looks = Looks(places=2)
    hang(looks, answered)
    hang(looks, answered)
    assert looks.hanging("/a") == 2
    threads = threading.active_count()
    began = time.monotonic()
    with pytest.raises(StorageSilent) as silent:
        looks.look("/a", "/a/chk", lambda: 7, Patience(LONG))
    assert silent.value.waited_s < LONG / 2
    assert time.monotonic() - began < LONG / 2
    assert threading.active_count() == threads
    answered.set()
    eventually("they come back", lambda: looks.hanging("/a") == 0)
    assert looks.look("/a", "/a/chk", lambda: 7, Patience(LONG)) == 7


def test_a_root_that_hangs_holds_up_no_other(answered: threading.Event) -> None:
    looks = Looks(places=1)
    hang(looks, answered)
    assert looks.look("/b", "/b/chk", lambda: 7, Patience(LONG)) == 7


def test_more_than_have_a_place_wait_for_one(answered: threading.Event) -> None:
    looks, entered = Looks(places=1), threading.Event()

    def slow() -> bool:
        entered.set()
        return answered.wait(LONG)

    first = threading.Thread(target=looks.look, args=("/a", "/a/1", slow, Patience(LONG)))
    first.start()
    assert entered.wait(LONG)
    with pytest.raises(StorageSilent):
        looks.look("/a", "/a/2", lambda: 7, Patience(0.05))  # all threads are in use
    threading.Timer(0.05, answered.set).start()
    assert looks.look("/a", "/a/2", lambda: 7, Patience(LONG)) == 7
    first.join(LONG)


def test_patience_is_one_for_many_looks() -> None:
    at = [0.0]
    patience = Patience(5, lambda: at[0])
    at[0] = 4.5
    assert patience.left_s == 0.5
    at[0] = 9
    assert patience.left_s == 0
