"""The driver's connection to a real WebSocket server: lost, restored and refused connections, and the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.clock import Clock, ManualClock, SystemClock
from checkpointing.ids import new_id
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    Cancel,
    DriverState,
    Heartbeat,
    NotifyComplete,
    QueryProgress,
    Refused,
    Register,
    Registered,
    StatusUpdate,
    SubtaskMetrics,
    Wait,
)
from checkpointing.spark.job_manager_link import JobManagerLink, LinkSettings, Vitals

MakeLink = Callable[..., JobManagerLink]


@pytest.fixture
def lease_lost() -> threading.Event:
    return threading.Event()


@pytest.fixture
def make_link(lease_lost: threading.Event) -> Iterator[MakeLink]:
    made: list[JobManagerLink] = []

    def make(
        find_address: Callable[[float], str | None], lease_s: float = 30.0, clock: Clock | None = None
    ) -> JobManagerLink:
        link = JobManagerLink(
            LinkSettings("job", 1, lease_s),
            find_address,
            lambda: Register("job", 1, 7, DriverState.RUNNING, (), {"words": 4}),
            lambda: Vitals({"words": QueryProgress(4, 300, 1200)}),
            lease_lost.set,
            clock or SystemClock(),
        )
        made.append(link)
        link.start()
        return link

    yield make
    for link in made:
        link.close(0)


def acknowledgement(checkpoint_id: int) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint("old", "job", 1, checkpoint_id, "v", 0, SubtaskMetrics(), (), {"words": 4})


def status(state: DriverState) -> StatusUpdate:
    return StatusUpdate("", "job", 1, state)


def test_link_registers_at_once_and_then_sends_heartbeats(
    job_manager: Any, make_link: MakeLink, eventually: Any
) -> None:
    link = make_link(lambda _: job_manager.address)
    registered = link.incoming.get(timeout=20)
    assert isinstance(registered, Registered)
    assert link.session_id == job_manager.session_id
    eventually("two heartbeats", lambda: len(job_manager.heard(Heartbeat)) >= 2)
    assert isinstance(job_manager.received[0], Register)
    assert job_manager.heard(Heartbeat)[0].queries["words"].input_rows == 300


def test_a_lost_connection_is_opened_again_and_unsent_messages_follow(
    job_manager: Any, make_link: MakeLink, eventually: Any
) -> None:
    link = make_link(lambda _: job_manager.address)
    link.incoming.get(timeout=20)
    job_manager.stop()
    eventually("the loss is seen", lambda: link._socket is None)
    link.send(status(DriverState.RUNNING))
    job_manager.session_id = new_id()
    job_manager.start()
    eventually("the status", lambda: job_manager.heard(StatusUpdate))
    assert len(job_manager.heard(Register)) == 2
    assert job_manager.heard(StatusUpdate)[0].session_id == job_manager.session_id


def test_acknowledgements_follow_a_reconnection_only_while_their_checkpoint_is_pending(
    job_manager: Any, make_link: MakeLink, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = make_link(lambda _: job_manager.address)
    link.incoming.get(timeout=20)
    job_manager.trigger(1)
    job_manager.trigger(2)
    job_manager.stop()
    eventually("the loss is seen", lambda: link._socket is None)
    link.send(acknowledgement(1))
    link.send(acknowledgement(2))
    monkeypatch.setattr(job_manager, "_is_over", lambda take: take.message.checkpoint_id == 2)
    job_manager.start()
    eventually("registered again", lambda: len(job_manager.heard(Register)) == 2)
    eventually("the acknowledgement", lambda: job_manager.heard(AcknowledgeCheckpoint))
    eventually("a heartbeat after it", lambda: isinstance(job_manager.received[-1], Heartbeat))
    assert [ack.checkpoint_id for ack in job_manager.heard(AcknowledgeCheckpoint)] == [1]


def test_messages_of_an_old_session_are_dropped(job_manager: Any, make_link: MakeLink) -> None:
    link = make_link(lambda _: job_manager.address)
    link.incoming.get(timeout=20)
    job_manager.send(Cancel("another session"))
    job_manager.send(NotifyComplete(job_manager.session_id, 1, None))
    assert isinstance(link.incoming.get(timeout=20), NotifyComplete)


def test_a_refused_driver_does_not_reconnect(
    job_manager: Any, make_link: MakeLink, lease_lost: threading.Event, eventually: Any
) -> None:
    link = make_link(lambda _: job_manager.address)
    link.incoming.get(timeout=20)
    job_manager.send(Refused("attempt 1 is not the current one"))
    message = link.incoming.get(timeout=20)
    assert isinstance(message, Refused)
    eventually("the thread ends", lambda: not link._thread.is_alive())
    eventually("the watch ends", lambda: not link._lease_watch.is_alive())
    assert not lease_lost.is_set(), "a refused driver ends by itself"


def test_the_lease_runs_out_when_no_leader_is_known(make_link: MakeLink, lease_lost: threading.Event) -> None:
    make_link(lambda _: None, lease_s=0.5)
    assert lease_lost.wait(20)


def test_the_lease_expires_without_the_job_manager(
    job_manager: Any, make_link: MakeLink, lease_lost: threading.Event
) -> None:
    clock = ManualClock()
    link = make_link(lambda _: job_manager.address, lease_s=2.0, clock=clock)
    link.incoming.get(timeout=20)
    job_manager.stop()
    assert not lease_lost.is_set()
    clock.advance(2.0)
    assert lease_lost.wait(20)


def test_heartbeats_that_are_answered_renew_the_lease(
    job_manager: Any, make_link: MakeLink, lease_lost: threading.Event, eventually: Any
) -> None:
    clock = ManualClock()
    link = make_link(lambda _: job_manager.address, lease_s=2.0, clock=clock)
    link.incoming.get(timeout=20)
    assert_is_renewed(link, clock, eventually)
    assert not lease_lost.is_set()


def assert_is_renewed(link: JobManagerLink, clock: ManualClock, eventually: Any) -> None:
    """Let more than two leases of 2 s pass."""
    for _ in range(5):
        clock.advance(1.0)
        eventually("a renewed lease", lambda: link._confirmed_s == clock.monotonic())


def test_a_leader_that_postpones_a_registration_renews_the_lease_until_then(
    job_manager: Any, make_link: MakeLink, lease_lost: threading.Event, eventually: Any
) -> None:
    job_manager.answer = Wait(job_manager.session_id)
    clock = ManualClock()
    link = make_link(lambda _: job_manager.address, lease_s=2.0, clock=clock)
    assert_is_renewed(link, clock, eventually)
    assert not lease_lost.is_set()
    assert link.incoming.empty()
    job_manager.answer = None
    assert isinstance(link.incoming.get(timeout=20), Registered)


def test_a_job_manager_that_hangs_does_not_renew_the_lease(
    tmp_path: Path, make_link: MakeLink, lease_lost: threading.Event
) -> None:
    """The connection stays open without answers, as when the other machine hangs."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        make_link(lambda _: f"http://127.0.0.1:{server.getsockname()[1]}", lease_s=1.0)
        assert lease_lost.wait(20)


def test_close_waits_for_the_last_messages(job_manager: Any, make_link: MakeLink, eventually: Any) -> None:
    link = make_link(lambda _: job_manager.address)
    link.send(status(DriverState.FINISHED))
    assert link.close(20)
    [received] = eventually("the status", lambda: job_manager.heard(StatusUpdate))
    assert received.state is DriverState.FINISHED


def test_close_stops_waiting_after_its_limit(make_link: MakeLink) -> None:
    link = make_link(lambda _: None)
    link.send(status(DriverState.FINISHED))
    assert not link.close(0.3)
