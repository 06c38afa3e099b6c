"""A gunicorn worker whose threads serve whole requests only.

gunicorn's own threaded worker reads a request in one of its threads and waits there for the client, so as many
half-sent requests as it has threads stop the site. Here the event loop collects a request without waiting: its head
and a body of up to LARGEST_COLLECTED bytes. Larger bodies are read in a thread; the application refuses them to callers
who are not logged in (dashboard/middleware.py).
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from dashboard.web_server import LARGEST_ANONYMOUS_BODY

LARGEST_COLLECTED = LARGEST_ANONYMOUS_BODY
REQUEST_LIMIT_S = 20.0  # from the first wait for a request to its last byte
SOCKET_LIMIT_S = 10.0  # for one read of a large body, and for one write
_LINGER_S = 2.0
_LONGEST_HEAD = 64 * 1024
_CHUNK = 64 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


class Arrival(Enum):
    PART = "part"
    HEAD = "head"
    """All but the body, which a thread has to read."""
    WHOLE = "whole"
    UNUSABLE = "unusable"


def arrival(data: bytes | bytearray) -> Arrival:
    """Judge what has arrived of a request. Whether it is valid HTTP is for gunicorn's parser to say."""
    end = data.find(_END_OF_HEAD)
    if end < 0:
        return Arrival.PART if len(data) <= _LONGEST_HEAD else Arrival.UNUSABLE
    head = bytes(data[: end + 2])
    length = _LENGTH.search(head)
    if _CHUNKED.search(head) or (length and int(length[1]) > LARGEST_COLLECTED):
        return Arrival.HEAD
    missing = end + len(_END_OF_HEAD) + (int(length[1]) if length else 0) - len(data)
    return Arrival.PART if missing > 0 else Arrival.WHOLE


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """Collects a request before the parser sees it. `close_later` closes without waiting for the client."""

    def __init__(self, close_later: Callable[[Connection], None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.data_ready = True  # gunicorn need not wait in a thread: it gets a request that has arrived
        self.deadline: float | None = None
        self.body_is_here = True
        self._close_later = close_later
        self._arrived = bytearray()

    def receive(self) -> Arrival:
        """Take in what the client has sent, without waiting."""
        if self.parser is not None:
            self._arrived += self.parser.unreader.take_buffered()
        while (found := arrival(self._arrived)) is Arrival.PART:
            try:
                chunk = self.sock.recv(_CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            except OSError:
                return Arrival.UNUSABLE
            if not chunk:
                return Arrival.UNUSABLE
            self._arrived += chunk
        self.body_is_here = found is Arrival.WHOLE
        return found

    @property
    def has_begun(self) -> bool:
        return bool(self._arrived)

    def is_late(self, now: float) -> bool:
        return self.deadline is not None and self.deadline <= now

    def init(self) -> None:
        """Called by the thread, each time, before it parses."""
        super().init()
        self.sock.settimeout(SOCKET_LIMIT_S)
        self.parser.unreader.unread(bytes(self._arrived))
        self._arrived.clear()

    def close(self, graceful: bool = False) -> None:
        if graceful:
            self._close_later(self)
        else:
            super().close()


class PatientWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """All methods but `handle_request` run in the event loop's thread."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting: set[Connection] = set()  # for a request, or for the client to take its response

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self.nr_conns += 1
        self.enqueue_req(Connection(self._linger, self.cfg, client, address, listener.getsockname()))

    def enqueue_req(self, conn: Connection) -> None:
        """Give a thread to a connection whose request is here."""
        found = Arrival.HEAD if self.cfg.is_ssl else conn.receive()
        match found:
            case Arrival.PART:
                conn.deadline = conn.deadline or time.monotonic() + REQUEST_LIMIT_S
                self._wait(conn, self.enqueue_req)
            case Arrival.UNUSABLE:
                self._drop(conn)
            case _:
                conn.deadline = None
                super().enqueue_req(conn)

    def handle_request(self, req: Any, conn: Connection) -> Any:
        """A body that is not here is not drained afterwards, which would take a thread: the connection ends."""
        if not conn.body_is_here:
            req.force_close()
        return super().handle_request(req, conn)

    def murder_pending(self) -> None:
        """Drop those that take too long; when the worker stops, those that have sent nothing, too."""
        now = time.monotonic()
        for conn in [each for each in self._waiting if each.is_late(now) or not (self.alive or each.has_begun)]:
            self._stop_waiting(conn)
            self._drop(conn)

    def _linger(self, conn: Connection) -> None:
        """Close once the client has read its response: unread data would reset the connection before.

        gunicorn waits for that in the event loop, two seconds for each client that does not close its side.
        """
        self.nr_conns += 1  # gunicorn counts it as closed
        conn.sock.setblocking(False)
        try:
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(conn)
            return
        conn.deadline = time.monotonic() + _LINGER_S
        self._wait(conn, self._discard)

    def _discard(self, conn: Connection) -> None:
        try:
            is_open = bool(conn.sock.recv(_CHUNK, socket.MSG_DONTWAIT))
        except BlockingIOError:
            is_open = True
        except OSError:
            is_open = False
        if is_open:
            self._wait(conn, self._discard)
        else:
            self._drop(conn)

    def _wait(self, conn: Connection, then: Callable[[Connection], None]) -> None:
        self._waiting.add(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_readable, conn, then))

    def _on_readable(self, conn: Connection, then: Callable[[Connection], None], _socket: object) -> None:
        self._stop_waiting(conn)
        then(conn)

    def _stop_waiting(self, conn: Connection) -> None:
        self._waiting.discard(conn)
        self.poller.unregister(conn.sock)

    def _drop(self, conn: Connection) -> None:
        self.nr_conns -= 1
        conn.close()
