"""Slow clients occupy no thread of the web server. The tests use a real server with two threads."""

from __future__ import annotations

import http.client
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from dashboard.stack.ports import accepts, any_free
from dashboard.web_server import IDLE_LIMIT_S
from tests.dashboard.web_server.served import LARGEST_BODY
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
HALF_A_HEAD = b"GET /half HTTP/1.1\r\nHost: x\r\n"
HALF_A_BODY = b"POST /half HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n12345"
NO_CHUNK = b"POST /half HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
STAYS_OPEN = b"GET /ends HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@contextmanager
def serving(log: Path, idle_limit_s: float = IDLE_LIMIT_S) -> Iterator[int]:
    port = any_free()
    command = (sys.executable, "-m", "tests.dashboard.web_server.served", str(port), str(idle_limit_s))
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        eventually("the web server listens", lambda: accepts(port), 60)
        yield port
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving(tmp_path_factory.mktemp("web") / "web.log") as port:
        yield port


Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(port: int) -> Iterator[Connect]:
    with ExitStack() as left:
        yield lambda: left.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))


def ask(connection: socket.socket, request: bytes, answer: bytes) -> bytes:
    """Send `request` and read until `answer` has come."""
    connection.sendall(request)
    return read_until(connection, answer)


def read_until(connection: socket.socket, answer: bytes) -> bytes:
    text = b""
    while answer not in text:
        chunk = connection.recv(65536)
        assert chunk, f"closed after {text!r}"
        text += chunk
    return text


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection, however it does."""
    text = b""
    with suppress(ConnectionError):
        while chunk := connection.recv(65536):
            text += chunk
    return text


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD, HALF_A_BODY, NO_CHUNK])
def test_slow_clients_do_not_block_other_clients(port: int, connect: Connect, sent: bytes) -> None:
    """The other client is served before the server closes any of the slow connections."""
    for _ in range(30):
        connect().sendall(sent)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    client.request("GET", "/healthz")
    assert client.getresponse().read() == b"GET /healthz 0"
    client.close()


def test_a_request_that_arrives_byte_by_byte_is_served(connect: Connect) -> None:
    connection = connect()
    request = b"POST /pieces HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in request[:-1]:
        connection.sendall(bytes([byte]))
    ask(connection, request[-1:], b"POST /pieces 5")


def test_requests_that_come_together_are_served_in_order(connect: Connect) -> None:
    requests = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5))
    text = ask(connect(), requests, b"GET /4 0")
    assert [text.index(b"GET /%d 0" % number) for number in range(5)] == sorted(
        text.index(b"GET /%d 0" % number) for number in range(5)
    )


def test_a_body_above_the_limit_is_refused(connect: Connect) -> None:
    head = b"POST /large HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    ask(connect(), head % LARGEST_BODY + b"x" * LARGEST_BODY, b"POST /large %d" % LARGEST_BODY)
    ask(connect(), head % (LARGEST_BODY + 1), b"413 Request Entity Too Large")  # refused before the body is sent


def test_a_chunked_body_above_the_limit_is_refused(connect: Connect) -> None:
    connection = connect()
    connection.sendall(NO_CHUNK)
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with suppress(ConnectionError):  # where the server ends the connection first
        for _ in range(2 * LARGEST_BODY // 0x10000):
            connection.sendall(chunk)
    assert b"POST /half" not in read_all(connection)


def test_clients_that_keep_a_finished_connection_open_delay_no_others(connect: Connect) -> None:
    for rounds in range(2):
        connections = [connect() for _ in range(15)]
        for connection in connections:
            connection.settimeout(15)
            connection.sendall(STAYS_OPEN)
        for connection in connections:
            read_until(connection, b"GET /ends 0")
            assert connection.recv(1) == b"", rounds


def test_an_idle_connection_stays_open_between_polls(connect: Connect) -> None:
    connection = connect()
    request = b"GET /poll HTTP/1.1\r\nHost: x\r\n\r\n"
    ask(connection, request, b"GET /poll 0")
    assert select.select([connection], [], [], 4) == ([], [], [])
    ask(connection, request, b"GET /poll 0")


def test_an_endless_request_head_ends_the_connection(connect: Connect) -> None:
    connection = connect()
    with suppress(ConnectionError):  # where the server ends the connection first
        connection.sendall(HALF_A_HEAD + b"X: " + b"y" * 2_000_000)
    assert b"GET /half" not in read_all(connection)


def test_a_connection_that_sends_nothing_more_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path / "web.log", idle_limit_s=1) as port, ExitStack() as left:
        connections = {}
        for sent in (b"", HALF_A_HEAD, HALF_A_BODY):
            connections[sent] = left.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            connections[sent].sendall(sent)
        for sent, connection in connections.items():
            assert connection.recv(1) == b"", sent
