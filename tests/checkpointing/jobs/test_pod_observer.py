"""The observer's view of pods changes only by the API's answers. A list says nothing about newer pods."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from checkpointing.clock import SystemClock
from checkpointing.jobs.launching.kubernetes.conditions import facts_of
from checkpointing.jobs.launching.kubernetes.observer import PodId, PodObserver
from tests.waiting import eventually

POD = PodId("streams", "waymark-1", "uid-1")


def pod(uid: str = "uid-1", phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": POD.name, "uid": uid}, "status": {"phase": phase}}


class Lists:
    """An API whose lists of pods come from the test. Each call waits for `answer`."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.given = threading.Semaphore(0)
        self.pods_now: list[dict[str, Any]] = []

    def pods(self, namespace: str, selector: object) -> list[dict[str, Any]]:
        answer = list(self.pods_now)  # the pods at the time of the request
        self.asked.release()
        assert self.given.acquire(timeout=60)
        return answer

    def answer(self) -> None:
        self.given.release()

    def is_asked(self) -> None:
        assert self.asked.acquire(timeout=60)


@pytest.fixture
def lists() -> Lists:
    return Lists()


@pytest.fixture
def observer(lists: Lists) -> Iterator[PodObserver]:
    made = PodObserver(lists, {}, SystemClock(), interval_s=0.001)  # type: ignore[arg-type]
    yield made
    made.close()
    for _ in range(10):
        lists.answer()


def test_a_list_that_began_before_a_pod_existed_does_not_report_it_as_missing(
    lists: Lists, observer: PodObserver
) -> None:
    other = PodId(POD.namespace, "waymark-2", "uid-2")
    observer.follow(other)
    lists.is_asked()
    observer.follow(POD, facts_of(pod()))
    lists.answer()
    eventually("the list has told of the other one", lambda: observer.known(other).is_gone)
    assert not observer.known(POD).is_gone
    lists.is_asked()
    lists.answer()
    eventually("the next list counts", lambda: observer.known(POD).is_gone)


def test_another_pod_of_the_same_name_is_not_the_one_that_is_followed(lists: Lists, observer: PodObserver) -> None:
    observer.follow(POD, facts_of(pod()))
    lists.pods_now = [pod("uid-9", "Pending")]
    lists.is_asked()
    lists.answer()
    lists.is_asked()
    lists.answer()
    eventually("it is gone", lambda: observer.known(POD).is_gone)
    facts = observer.known(POD).facts
    assert facts is not None
    assert (facts.uid, facts.phase) == ("uid-1", "Running"), "its last facts stay"


def test_a_pod_that_could_not_be_read_is_the_first_one_that_is_found(lists: Lists, observer: PodObserver) -> None:
    unknown = PodId(POD.namespace, POD.name, "")
    lists.pods_now = [pod("uid-1")]
    observer.follow(unknown)
    lists.is_asked()
    lists.answer()
    eventually("it is seen", lambda: observer.known(unknown).facts)
    lists.pods_now = [pod("uid-9")]
    for _ in range(2):
        lists.is_asked()
        lists.answer()
    eventually("it is gone", lambda: observer.known(unknown).is_gone)
