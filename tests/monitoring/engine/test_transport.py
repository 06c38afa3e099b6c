"""Requests to an engine: limits of time and size, redirects, persistent connections."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection, bearer
from monitoring.engine.errors import ConnectionFailure, Malformed, Redirected, RequestNotSent, Unreachable
from monitoring.engine.transport import Answer, Transport

BODY_LIMIT = 10_000
BODY = b'{"jobs":[]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ANSWER = HEAD + b"Content-Length: 11\r\n\r\n" + BODY
# Both end the connection: END at once, HANGS_UP after a request was read.
END, HANGS_UP = None, b""


@dataclass
class Server:
    """A server with scripted answers: one list of `connections` per connection, one answer of the list per request.

    A request without a scripted answer stays unanswered.
    """

    connections: list[list[bytes | None]]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    accepted: int = 0
    was_connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self.connections[min(self.accepted, len(self.connections) - 1)]
        self.accepted += 1
        self.was_connected.set()
        try:
            for piece in script:
                if piece is END:
                    break
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                if piece == HANGS_UP:
                    break
                writer.write(piece)
                await writer.drain()
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def playing(*connections: Sequence[bytes | None], host: str = "127.0.0.1") -> AsyncIterator[Server]:
    server = Server([list(each) for each in connections])
    listening = await asyncio.start_server(server.serve, host, 0)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()


@asynccontextmanager
async def asking(url: str, authorization: str = "") -> AsyncIterator[Transport]:
    transport = Transport(Connection(url, authorization), BODY_LIMIT)
    try:
        yield transport
    finally:
        await transport.close()


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


ANSWERS: dict[str, list[bytes | None]] = {
    "plain": [ANSWER],
    "in chunks": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY[:4], BODY[4:])],
    "of HTTP/1.0": [ANSWER.replace(b"HTTP/1.1", b"HTTP/1.0"), END],
    "elsewhere, with much to say": [
        b"HTTP/1.1 307 Found\r\nLocation: /x\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000
    ],
    "compressed all the same": [
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(BODY)) + gzip.compress(BODY)
    ],
    "small and compressed, large when read": [
        HEAD
        + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(b"x" * 200_000))
        + gzip.compress(b"x" * 200_000)
    ],
    "too large": [HEAD + b"Content-Length: 10001\r\n\r\n" + b"x" * 10_001],
    "too large, in chunks": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 6000, b"x" * 6000)],
    "cut short": [HEAD + b"Content-Length: 11\r\n\r\n{", END],
    "no HTTP": [b"220 mail.example ESMTP\r\n", END],
    "a header without end": [HEAD + b"X: " + b"x" * 100_000 + b"\r\n\r\n" + BODY],
    "nothing": [HANGS_UP],
}


@pytest.mark.parametrize("of", ["plain", "in chunks", "of HTTP/1.0", "compressed all the same"])
async def test_an_answer_is_read(of):
    async with playing(ANSWERS[of]) as server, asking(server.url) as reads:
        answer = await reads.ask("GET", "/jobs", 30.0)
        assert (answer.status, answer.content) == (200, BODY)


@pytest.mark.parametrize("of", ["too large", "too large, in chunks", "small and compressed, large when read"])
async def test_the_size_of_an_answer_is_limited(of):
    async with playing(ANSWERS[of]) as server, asking(server.url) as reads:
        with pytest.raises(Malformed, match="larger than 10000 bytes"):
            await reads.ask("GET", "/jobs", 30.0)


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        ("cut short", ConnectionFailure.BROKEN),
        ("no HTTP", ConnectionFailure.NO_HTTP),
        ("a header without end", ConnectionFailure.NO_HTTP),
        ("nothing", ConnectionFailure.CLOSED_BY_SERVER),
    ],
)
async def test_kinds_of_failures_are_distinguished(of, kind):
    async with playing(ANSWERS[of]) as server, FlinkClient(Connection(server.url)) as client:
        with pytest.raises(Unreachable) as result:
            await client.overview()
        assert result.value.kind is kind


async def test_a_request_has_these_headers():
    async with playing([ANSWER]) as server, asking(f"{server.url}/proxy/flink", bearer("s3cret")) as reads:
        assert (await reads.ask("GET", "/jobs?mode=x", 30.0)).content == BODY
    first, *headers, _, _ = server.requests[0].decode().split("\r\n")
    assert first == "GET /proxy/flink/jobs?mode=x HTTP/1.1"
    assert sorted(headers) == [
        "Accept-Encoding: identity",
        "Accept: */*",
        "Authorization: Bearer s3cret",
        f"Host: {server.url.removeprefix('http://')}",
        "User-Agent: waymark",
    ]


async def test_an_ipv6_address_is_in_brackets_in_the_host_header():
    async with playing([ANSWER], host="::1") as server, asking(server.url) as reads:
        assert (await reads.ask("GET", "/jobs", 30.0)).status == 200
    assert f"Host: {server.url.removeprefix('http://')}\r\n".encode() in server.requests[0]


async def test_one_connection_is_kept():
    async with playing([ANSWER, ANSWER, ANSWER]) as server, asking(server.url) as reads:
        for _ in range(2):
            assert (await reads.ask("GET", "/jobs", 30.0)).content == BODY
        assert (await reads.ask("PATCH", "/jobs/1", 30.0)).content == BODY
    assert server.accepted == 1


async def test_an_ended_persistent_connection_is_replaced():
    async with playing([ANSWER, END], [ANSWER]) as server, asking(server.url) as reads:
        for _ in range(2):
            assert (await reads.ask("GET", "/jobs", 30.0)).content == BODY
    assert server.accepted == 2


async def test_a_request_to_a_server_that_closes_connections_is_sent_twice():
    async with playing([HANGS_UP]) as server, asking(server.url) as reads:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await reads.ask("GET", "/jobs", 30.0)
    assert server.accepted == 2


async def test_bytes_after_a_response_are_not_a_response_to_the_next_request():
    async with playing([ANSWER + ANSWER.replace(b"jobs", b"lies")], [ANSWER]) as server, asking(server.url) as reads:
        for _ in range(2):
            assert (await reads.ask("GET", "/jobs", 30.0)).content == BODY
    assert server.accepted == 2


async def test_a_late_response_is_not_a_response_to_the_next_request():
    late = HEAD + b"Content-Length: 11\r\n\r\n"
    async with playing([late], [ANSWER]) as server, asking(server.url) as reads:
        with pytest.raises(TimeoutError):
            await reads.ask("GET", "/jobs", 0.2)
        assert (await reads.ask("GET", "/jobs", 30.0)).content == BODY
    assert server.accepted == 2


async def test_a_cancelled_read_leaves_a_usable_connection_pool():
    async with playing([], [ANSWER]) as server, asking(server.url) as reads:
        asked = asyncio.create_task(reads.ask("GET", "/jobs", 30.0))
        async with asyncio.timeout(5):
            await server.was_connected.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await reads.ask("GET", "/jobs", 30.0)).content == BODY


async def test_concurrent_requests_get_their_answers():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
                await asyncio.sleep(hash(path) % 7 / 1000)
                writer.write(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(path), path))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with listening, asking(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}") as reads:
        paths = [f"/{number}" for number in range(200)]
        answers: list[Answer] = await asyncio.gather(*(reads.ask("GET", path, 10.0) for path in paths))
        assert [answer.content.decode() for answer in answers] == paths


async def test_a_secret_with_a_line_break_is_not_sent():
    async with playing([ANSWER]) as server, asking(server.url, "Bearer a\r\nX-Other: b") as reads:
        with pytest.raises(ValueError, match="header injection"):
            await reads.ask("GET", "/jobs", 30.0)
    assert server.requests == []


async def test_an_address_that_is_not_allowed_is_not_contacted():
    async with asking("http://169.254.169.254") as reads:
        with pytest.raises(RequestNotSent):
            await reads.ask("GET", "/jobs", 30.0)


async def test_a_redirect_is_an_error_and_not_followed():
    redirect = ANSWERS["elsewhere, with much to say"][0]
    async with playing([redirect, ANSWER], [ANSWER]) as server, asking(server.url) as reads:
        with pytest.raises(Redirected):
            await reads.ask("GET", "/jobs", 30.0)
        assert (await reads.ask("GET", "/jobs", 30.0)).content == BODY
