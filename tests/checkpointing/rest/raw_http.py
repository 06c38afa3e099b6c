"""An HTTP client that sends exactly the given headers, such as a browser or another program might send."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: Mapping[str, str]


async def call(
    address: str,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | Iterable[bytes] = b"",
) -> Answer:
    """Call the job manager at `address`. A body in parts is sent in chunks, without a Content-Length."""
    return await asyncio.to_thread(_call, address, method, path, headers or {}, body)


def _call(address: str, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes]) -> Answer:
    place = address.removeprefix("http://")
    chunked = not isinstance(body, bytes)
    with contextlib.closing(http.client.HTTPConnection(place, timeout=30)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        length = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body))}  # type: ignore[arg-type]
        for name, value in {"Host": place, **length, **headers}.items():
            connection.putheader(name, value)
        connection.endheaders(body, encode_chunked=chunked)
        with connection.getresponse() as answer:
            return Answer(answer.status, answer.read().decode(), dict(answer.headers))
