"""One request to an engine and its answer: aiohttp's connections, within limits of time and size.

Nearly all that Waymark asks are reads, thousands a second, and most of what aiohttp's session spends on one is for what
a read of an engine does not have: a body, cookies, redirects, proxies, traces. So a read takes a connection from the
library's pool, lets its parser read the answer, and leaves the session out. Everything else goes through the session,
over the same pool.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple

import aiohttp
from aiohttp.http import HttpProcessingError, RawResponseMessage
from yarl import URL

from monitoring.engine.connection import BadTls, CheckedResolver, Connection, trust
from monitoring.engine.errors import Malformed, NotAsked, Redirected

CONNECT_LIMIT_S = 3.0
BODY_LIMIT = 16 * 1024 * 1024
# An idle connection: longer than any cluster's polls are apart, shorter than Flink's own limit (5 minutes).
KEPT_OPEN_S = 90.0

_SWITCHING_PROTOCOLS = 101


class Answer(NamedTuple):
    """`headers`: by name in any case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Transport:
    """Lives in the event loop of its first request, and keeps its connections open.

    Beside what is said of each method: NotAsked where a certificate cannot be used or the address is not allowed;
    aiohttp.ClientError, OSError (TimeoutError when `limit_s` was over, however slowly the bytes dripped) or ValueError
    where no answer came; Redirected, which is not followed; Malformed when the answer is larger than `body_limit`.
    """

    def __init__(self, connection: Connection, body_limit: int = BODY_LIMIT) -> None:
        self._connection = connection
        self._body_limit = body_limit
        self._opened: tuple[aiohttp.ClientSession, _Reads] | None = None

    async def get(self, path: str, limit_s: float, byte_range: str = "") -> Answer:
        """`byte_range`: the value of a Range header."""
        _, reads = self._opened or self._open()
        async with asyncio.timeout(limit_s):
            connection, message, body = await reads.ask(path, limit_s, byte_range)
            try:
                _require_no_redirect(message.code, message.headers)
                content = await self._content(message.headers, body, path)
            except BaseException:
                connection.close()
                raise
            connection.release()
            return Answer(message.code, message.headers, content)

    async def send(self, method: str, path: str, limit_s: float, content: bytes | None, kind: str | None) -> Answer:
        """`kind`: the content's media type."""
        session, _ = self._opened or self._open()
        async with session.request(
            method,
            URL(self._connection.url + path, encoded=True),
            data=None if content is None else BytesIO(content),  # in pieces: a program may be large
            headers={"Content-Type": kind} if content is not None and kind else None,
            allow_redirects=False,
            timeout=_within(limit_s),
        ) as response:
            _require_no_redirect(response.status, response.headers)
            return Answer(
                response.status, response.headers, await self._content(response.headers, response.content, path)
            )

    async def close(self) -> None:
        """Ends every connection; the next request opens new ones."""
        opened, self._opened = self._opened, None
        if opened is not None:
            session, _ = opened
            await session.close()

    def _open(self) -> tuple[aiohttp.ClientSession, _Reads]:
        self._connection.require_allowed()
        try:
            tls = trust(self._connection.tls)
        except BadTls as error:
            raise NotAsked(str(error)) from error
        # As many connections as requests at once: how many those are is the caller's choice.
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=KEPT_OPEN_S, resolver=CheckedResolver())
        headers = {"User-Agent": "waymark", "Accept-Encoding": "identity"}
        if self._connection.authorization:
            headers["Authorization"] = self._connection.authorization
        reads = _Reads(connector, self._connection.url, headers)
        session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            # A proxy named in the worker's environment is for the internet, not for the clusters it watches.
            trust_env=False,
        )
        self._opened = session, reads
        return self._opened

    async def _content(self, headers: Mapping[str, str], body: aiohttp.StreamReader, path: str) -> bytes:
        length = headers.get("Content-Length")
        # What comes compressed all the same is as long as it gets.
        if length is not None and int(length) <= self._body_limit and "Content-Encoding" not in headers:
            return await body.read()
        content = bytearray()
        async for chunk in body.iter_any():
            content += chunk
            if len(content) > self._body_limit:
                raise Malformed(f"The answer to {path} is larger than {self._body_limit} bytes.")
        return bytes(content)


class _Reads:
    """GET requests to one address, over connections of `connector`."""

    def __init__(self, connector: aiohttp.TCPConnector, url: str, headers: Mapping[str, str]) -> None:
        self._connector = connector
        # Says which connections are the address's, and all of a request's head but its path.
        self._request = aiohttp.ClientRequest(
            "GET", URL(url), headers=headers, loop=asyncio.get_running_loop(), session=None
        )
        head = [f"{name}: {value}" for name, value in self._request.headers.items()]
        if any("\r" in line or "\n" in line for line in head):
            raise ValueError("A header's value has a line break in it.")
        self._before = f"GET {self._request.url.raw_path.rstrip('/')}"
        self._first_line_end = " HTTP/1.1\r\n"
        self._after = "\r\n".join([*head, "", ""])

    async def ask(
        self, path: str, limit_s: float, byte_range: str = ""
    ) -> tuple[aiohttp.connector.Connection, RawResponseMessage, aiohttp.StreamReader]:
        """The answer's head, and its body as it comes, for which the connection is to be released or closed."""
        try:
            return await self._ask(path, limit_s, byte_range)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            # That an engine has ended an idle connection is seen only by the next request, which is made anew, once.
            return await self._ask(path, limit_s, byte_range)

    async def _ask(
        self, path: str, limit_s: float, byte_range: str
    ) -> tuple[aiohttp.connector.Connection, RawResponseMessage, aiohttp.StreamReader]:
        connection = await self._connected(limit_s)
        try:
            message, body = await self._head(connection, path, byte_range)
        except HttpProcessingError as error:
            connection.close()
            info = self._request.request_info
            raise aiohttp.ClientResponseError(info, (), status=error.code, message=error.message) from error
        except BaseException:
            connection.close()
            raise
        return connection, message, body

    async def _connected(self, limit_s: float) -> aiohttp.connector.Connection:
        try:
            return await self._connector.connect(self._request, [], _within(limit_s))
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {self._request.url}") from error

    async def _head(
        self, connection: aiohttp.connector.Connection, path: str, byte_range: str
    ) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or transport.is_closing():
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True)
        line = f"Range: {byte_range}\r\n" if byte_range else ""
        transport.write(f"{self._before}{path}{self._first_line_end}{line}{self._after}".encode())
        message, body = await protocol.read()
        while message.code < 200 and message.code != _SWITCHING_PROTOCOLS:  # a hint before the answer itself
            message, body = await protocol.read()
        return message, body


@lru_cache(maxsize=64)
def _within(limit_s: float) -> aiohttp.ClientTimeout:
    """All of a request, to the end of its answer, and to the instant."""
    return aiohttp.ClientTimeout(total=limit_s, sock_connect=min(CONNECT_LIMIT_S, limit_s), ceil_threshold=math.inf)


def _require_no_redirect(status: int, headers: Mapping[str, str]) -> None:
    if 300 <= status < 400:
        raise Redirected(status, headers.get("Location", ""))
