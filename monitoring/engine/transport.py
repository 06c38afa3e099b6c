"""One request to an engine and its answer: aiohttp's session, within limits of time and size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple

import aiohttp
from yarl import URL

from monitoring.engine.connection import BadTls, Connection, trust
from monitoring.engine.errors import Malformed, NotAsked, Redirected
from monitoring.outbound_http import CheckedResolver, cluster_policy
from monitoring.reasons.engines import EngineReason

CONNECT_LIMIT_S = 3.0
BODY_LIMIT = 16 * 1024 * 1024
# An idle connection: longer than any cluster's polls are apart, shorter than Flink's own limit (5 minutes).
KEPT_OPEN_S = 90.0


class Answer(NamedTuple):
    """An HTTP response. The names of `headers` are compared without regard to case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Transport:
    """Lives in the event loop of its first request, and keeps its connections open."""

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
            NotAsked: a certificate cannot be used, or the address is not allowed.
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
        session = self._session or self._open()
        async with session.request(
            method,
            URL(self._connection.url + path, encoded=True),
            data=None if content is None else BytesIO(content),  # in pieces: a program may be large
            headers=headers,
            allow_redirects=False,
            timeout=_within(limit_s),
        ) as response:
            if 300 <= response.status < 400:
                raise Redirected(response.status, response.headers.get("Location", ""))
            return Answer(response.status, response.headers, await self._content(response, path))

    async def close(self) -> None:
        """Ends every connection; the next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        self._connection.require_allowed()
        try:
            tls = trust(self._connection.tls)
        except BadTls as error:
            raise NotAsked(error.reason) from error
        # As many connections as requests at once: how many those are is the caller's choice.
        resolver = CheckedResolver(cluster_policy())
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=KEPT_OPEN_S, resolver=resolver)
        headers = {"User-Agent": "waymark", "Accept-Encoding": "identity"}
        if self._connection.authorization:
            headers["Authorization"] = self._connection.authorization
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            # A proxy named in the worker's environment is for the internet, not for the clusters it watches.
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


@lru_cache(maxsize=64)
def _within(limit_s: float) -> aiohttp.ClientTimeout:
    """All of a request, to the end of its answer, and to the instant."""
    return aiohttp.ClientTimeout(total=limit_s, sock_connect=min(CONNECT_LIMIT_S, limit_s), ceil_threshold=math.inf)
