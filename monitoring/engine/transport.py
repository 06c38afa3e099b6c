"""Send requests to an engine over one aiohttp session, within limits of time and size."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple

import aiohttp
from yarl import URL

from monitoring.engine.connection import BadTls, Connection, trust
from monitoring.engine.errors import Malformed, Redirected, RequestNotSent
from monitoring.outbound_http import CheckedResolver, cluster_policy
from monitoring.reasons.engines import EngineReason

CONNECT_LIMIT_S = 3.0
BODY_LIMIT = 16 * 1024 * 1024
# Limit for idle connections: longer than any poll interval, shorter than Flink's own limit (5 minutes).
KEEP_ALIVE_S = 90.0


class Answer(NamedTuple):
    """An HTTP response. The names of `headers` are compared without regard to case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Transport:
    """A session that keeps its connections open. It belongs to the event loop of its first request."""

    def __init__(self, connection: Connection, body_limit: int = BODY_LIMIT) -> None:
        self._connection = connection
        self._body_limit = body_limit
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self,
        method: str,
        path: str,
        limit_s: float,
        content: bytes | None = None,
        kind: str | None = None,
        byte_range: str = "",
    ) -> Answer:
        """Return the answer. `kind`: the content's media type. `byte_range`: the value of a Range header.

        Raises:
            RequestNotSent: a certificate cannot be used, or the address is not allowed.
            aiohttp.ClientError, OSError, ValueError: no answer came. TimeoutError when `limit_s` was over, however
                slowly the bytes came.
            Redirected: the answer is a redirect, which is not followed.
            Malformed: the answer is larger than `body_limit`.
        """
        headers = {}
        if content is not None and kind:
            headers["Content-Type"] = kind
        if byte_range:
            headers["Range"] = byte_range
        async with self._requested(method, path, limit_s, content, headers) as response:
            _require_no_redirect(response)
            return Answer(response.status, response.headers, await self._content(response, path))

    async def lines(self, path: str, limit_s: float) -> AsyncGenerator[Answer | list[bytes], None]:
        """Yield the complete lines of an answer as they arrive, and an Answer first if its status is not 200.

        The answer may be longer than `body_limit`, a line may not. An incomplete last line is left out.

        Raises:
            The exceptions of `ask`.
        """
        async with self._requested("GET", path, limit_s) as response:
            _require_no_redirect(response)
            if response.status != 200:
                yield Answer(response.status, response.headers, await self._content(response, path))
                return
            rest = b""
            async for chunk in response.content.iter_any():
                *complete, rest = (rest + chunk).split(b"\n")
                if len(rest) > self._body_limit:
                    raise Malformed(EngineReason.TOO_LARGE(path=path, limit=self._body_limit))
                if lines := [line for line in complete if line.strip()]:
                    yield lines

    def _requested(
        self,
        method: str,
        path: str,
        limit_s: float,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        session = self._session or self._open()
        return session.request(
            method,
            URL(self._connection.url + path, encoded=True),
            data=None if content is None else BytesIO(content),  # sent in chunks, because a program may be large
            headers=headers,
            allow_redirects=False,
            timeout=_within(limit_s),
        )

    async def close(self) -> None:
        """Close all connections. The next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        self._connection.require_allowed()
        try:
            tls = trust(self._connection.tls)
        except BadTls as error:
            raise RequestNotSent(error.reason) from error
        # limit=0: no limit here, because the caller limits the number of concurrent requests.
        resolver = CheckedResolver(cluster_policy())
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=KEEP_ALIVE_S, resolver=resolver)
        headers = {"User-Agent": "waymark", "Accept-Encoding": "identity"}
        if self._connection.authorization:
            headers["Authorization"] = self._connection.authorization
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            # A proxy in the worker's environment is for the internet, not for the clusters.
            trust_env=False,
        )
        return self._session

    async def _content(self, response: aiohttp.ClientResponse, path: str) -> bytes:
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > self._body_limit:
                raise Malformed(EngineReason.TOO_LARGE(path=path, limit=self._body_limit))
        return bytes(content)


def _require_no_redirect(response: aiohttp.ClientResponse) -> None:
    if 300 <= response.status < 400:
        raise Redirected(response.status, response.headers.get("Location", ""))


@lru_cache(maxsize=64)
def _within(limit_s: float) -> aiohttp.ClientTimeout:
    """Return a timeout for a whole request with its answer. `ceil_threshold` turns off rounding to seconds."""
    return aiohttp.ClientTimeout(total=limit_s, sock_connect=min(CONNECT_LIMIT_S, limit_s), ceil_threshold=math.inf)
