"""The driver's connection to its job manager: it opens, keeps and reopens it, and gives up after the lease.

It runs on a separate thread, so that heartbeats continue while Spark starts or a batch keeps the main thread busy.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from checkpointing.clock import Clock
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    DelayCheckpoint,
    Executor,
    Heartbeat,
    JobManagerMessage,
    MalformedMessage,
    Message,
    QueryProgress,
    Refused,
    Register,
    Registered,
    StatusUpdate,
    Wait,
    decode,
    encode,
)

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_LONGEST_WAIT_S = 0.5
_LONGEST_MESSAGE = 16 * 1024 * 1024
Report = AcknowledgeCheckpoint | DeclineCheckpoint | DelayCheckpoint | StatusUpdate


@dataclass(frozen=True)
class LinkSettings:
    """The settings of the link. `token` is sent as a bearer token if it is set."""

    job_id: str
    attempt: int
    lease_s: float
    token: str | None = None


@dataclass(frozen=True)
class Vitals:
    """The content of a heartbeat."""

    queries: Mapping[str, QueryProgress] = field(default_factory=dict)
    executors: tuple[Executor, ...] = ()


class JobManagerLink:
    """The link. `find_address` returns the leader's REST base URL or None.

    `register` and `vitals` return the driver's current state. `incoming` gets the job manager's messages without those
    of an old session; a Registered follows every new connection. `on_lease_lost` is called once, on another thread, if
    no leader was reachable during the lease. The lease starts with the last exchange that succeeded. After it another
    attempt may start at any moment.
    """

    def __init__(
        self,
        settings: LinkSettings,
        find_address: Callable[[float], str | None],
        register: Callable[[], Register],
        vitals: Callable[[], Vitals],
        on_lease_lost: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.incoming: queue.Queue[JobManagerMessage] = queue.Queue()
        self._settings = settings
        self._find_address = find_address
        self._register = register
        self._vitals = vitals
        self._on_lease_lost = on_lease_lost
        self._clock = clock
        self._confirmed_s = clock.monotonic()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._socket: ClientConnection | None = None
        self._session_id = ""
        self._unsent: list[Report] = []
        self._thread = threading.Thread(target=self._run, name="job-manager-link", daemon=True)
        self._lease_watch = threading.Thread(target=self._watch_lease, name="lease-watch", daemon=True)

    @property
    def session_id(self) -> str:
        return self._session_id

    def start(self) -> None:
        self._thread.start()
        self._lease_watch.start()

    def send(self, report: Report) -> None:
        """Send the report now, or after the next registration if there is no connection. Usable on any thread."""
        with self._lock:
            if not self._sent(report):
                self._unsent.append(report)

    def close(self, timeout_s: float) -> bool:
        """Close the connection.

        Return whether everything was sent; wait up to `timeout_s` for a connection for the rest.
        """
        deadline = self._clock.monotonic() + timeout_s
        while self._unsent and self._thread.is_alive() and self._clock.monotonic() < deadline:
            self._closing.wait(0.05)
        self._closing.set()
        with self._lock:
            socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
        return not self._unsent

    # --- the thread ---

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._one_connection()
            except (OSError, WebSocketException, TimeoutError, MalformedMessage) as error:
                log.warning("no connection to the job manager: %s", error)
            finally:
                with self._lock:
                    self._socket = None
            self._closing.wait(_RETRY_S)

    def _watch_lease(self) -> None:
        """Watch the lease on a separate thread, as the connection's thread may hang in the network for longer."""
        while (remaining := self._remaining_s()) > 0:
            if self._closing.wait(min(remaining, _LONGEST_WAIT_S)):
                return
        log.error("no job manager was reachable for %.0f s: another attempt may start", self._settings.lease_s)
        self._closing.set()
        self._on_lease_lost()

    def _remaining_s(self) -> float:
        return self._confirmed_s + self._settings.lease_s - self._clock.monotonic()

    def _one_connection(self) -> None:
        """Run one connection. Return or raise when it is over."""
        address = self._find_address(min(_LONGEST_WAIT_S, max(0.0, self._remaining_s())))
        if address is None:
            return
        with connect(
            _websocket_address(address),
            additional_headers={"Authorization": f"Bearer {self._settings.token}"} if self._settings.token else None,
            open_timeout=min(5.0, max(0.1, self._remaining_s())),
            close_timeout=1,
            ping_interval=None,  # the pings of this link show when the last exchange began
            max_size=_LONGEST_MESSAGE,
            proxy=None,
        ) as socket:
            registered = self._registered(socket)
            if registered is not None:
                self._talk(socket, registered)

    def _registered(self, socket: ClientConnection) -> Registered | None:
        began = self._clock.monotonic()
        socket.send(encode(self._register()))
        answer = decode(socket.recv(timeout=min(10.0, max(0.1, self._remaining_s()))))
        if isinstance(answer, Refused):
            self.incoming.put(answer)
            self._closing.set()
            return None
        if isinstance(answer, Wait):
            log.info("the leader cannot read the job yet; the driver runs on and registers again")
            self._confirmed_s = began
            return None
        if not isinstance(answer, Registered):
            raise MalformedMessage(f"the job manager answered the registration with {answer.type!r}")
        self._confirmed_s = began
        with self._lock:
            old_session, self._session_id = self._session_id, answer.session_id
            self._socket = socket
            known = answer.pending_checkpoints if old_session in ("", answer.session_id) else ()
            unsent, self._unsent = self._unsent, []
            for report in unsent:
                if isinstance(report, StatusUpdate) or report.checkpoint_id in known:
                    self._sent(report)
        log.info("registered with the job manager at %s", socket.remote_address)
        self.incoming.put(answer)
        return answer

    def _talk(self, socket: ClientConnection, registered: Registered) -> None:
        interval_s = registered.heartbeat_interval_ms / 1000
        timeout_s = registered.heartbeat_timeout_ms / 1000
        next_beat = self._clock.monotonic()
        pings: list[tuple[float, Any]] = []
        while not self._closing.is_set():
            now = self._clock.monotonic()
            if now >= next_beat:
                self._send_heartbeat(socket)
                pings.append((now, socket.ping()))
                next_beat = now + interval_s
            for began, pong in pings:
                if pong.is_set():
                    self._confirmed_s = max(self._confirmed_s, began)
            pings = [(began, pong) for began, pong in pings if not pong.is_set()]
            if pings and now - pings[0][0] > timeout_s:
                raise TimeoutError(f"the job manager has not answered for {timeout_s:.0f} s")
            try:
                text = socket.recv(timeout=max(0.01, min(next_beat - now, _LONGEST_WAIT_S)))
            except TimeoutError:
                continue
            self._receive(decode(text))

    def _send_heartbeat(self, socket: ClientConnection) -> None:
        settings, vitals = self._settings, self._vitals()
        queries, executors = dict(vitals.queries), vitals.executors
        beat = Heartbeat(self._session_id, settings.job_id, settings.attempt, queries, executors)
        socket.send(encode(beat))

    def _receive(self, message: Message) -> None:
        if isinstance(message, Refused):
            self.incoming.put(message)
            self._closing.set()
        elif isinstance(message, JobManagerMessage):
            if message.session_id == self._session_id:
                self.incoming.put(message)
            else:
                log.info("a %s of an old session is dropped", message.type)

    def _sent(self, report: Report) -> bool:
        """Send the report and return whether it was sent. Call it with the lock held.

        The report gets the current session ID, because a report from before a reconnection is still valid.
        """
        if self._socket is None:
            return False
        try:
            self._socket.send(encode(replace(report, session_id=self._session_id)))
        except (OSError, WebSocketException):
            return False
        return True


def _websocket_address(address: str) -> str:
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "http", address
    return f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{rest.rstrip('/')}/drivers"
