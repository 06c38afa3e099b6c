"""Send HTTP requests to addresses that people entered. aiohttp connects only to checked addresses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import aiohttp.abc
from django.conf import settings
from yarl import URL

from monitoring import outbound
from monitoring.outbound import Denied, Policy, ResolveAsync, Target
from monitoring.reasons.addresses import AddressReason

TIMEOUT = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0, sock_read=10.0)
ANSWER_BYTES = 300  # bytes of the answer that are read and shown in the delivery's log
ANSWER_S = 10.0  # time limit for reading them, so that a slow receiver does not block the worker
_KEPT_IN_URLS = "%/:?[]@!$&'()*+,;="


class AddressDenied(OSError):
    """Raised if the address is not allowed, before a connection is made; `denied` has the reason."""

    def __init__(self, denied: Denied) -> None:
        super().__init__(str(denied.reason))
        self.denied = denied


class NotReached(Exception):
    """Raised if there is no answer. The message has the cause, but not the URL, which may be a secret."""


@dataclass(frozen=True)
class Answer:
    """An HTTP response. `text` is the start of the content, on one line."""

    status: int
    phrase: str
    headers: Mapping[str, str]
    text: str


def webhook_policy() -> Policy:
    return Policy(AddressReason.CHANNEL(), private=False, exemptions=settings.OUTBOUND_ALLOW)


def cluster_policy() -> Policy:
    return Policy(AddressReason.CLUSTER(), private=True, exemptions=settings.OUTBOUND_ALLOW)


@cache
def _trusting(pem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    if pem:
        context.load_verify_locations(cadata=pem)
    return context


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts this machine's authorities and those of WAYMARK_CA_BUNDLE."""
    return _trusting(settings.CA_BUNDLE)


class CheckedResolver(aiohttp.abc.AbstractResolver):
    """Resolves names to checked addresses. Raises AddressDenied for a forbidden one, OSError for an unknown name.

    aiohttp does not resolve IP addresses in URLs: `outbound.target_of` checks these before the request.
    """

    def __init__(self, policy: Policy, resolve: ResolveAsync | None = None) -> None:
        self._policy = policy
        self._resolve = resolve or outbound.resolve_async

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[aiohttp.abc.ResolveResult]:
        found = await self._resolve(host, port)
        judged = outbound.judge(Target("http", host.lower().removesuffix("."), port), found, self._policy)
        if isinstance(judged, Denied):
            raise AddressDenied(judged)
        return [_result(host, address, port) for address in judged.addresses]

    async def close(self) -> None: ...


def _result(host: str, address: str, port: int) -> aiohttp.abc.ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return {"hostname": host, "host": address, "port": port, "family": family, "proto": 0, "flags": flags}


def send(
    method: str,
    url: str,
    policy: Policy,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    resolve: ResolveAsync | None = None,
) -> Answer:
    """Send one request and return the answer. Redirects are not followed.

    Raises:
        AddressDenied: the address is not allowed, or its name does not resolve.
        TimeoutError, NotReached: no answer came.
    """
    target = outbound.target_of(url, policy)
    if isinstance(target, Denied):
        raise AddressDenied(target)
    try:
        return asyncio.run(_send(method, _url(url, target), headers or {}, body, CheckedResolver(policy, resolve)))
    except aiohttp.ClientConnectorDNSError as error:
        cause = error.os_error
        denied = cause if isinstance(cause, AddressDenied) else AddressDenied(outbound.unresolved(target, cause))
        raise denied from None
    except TimeoutError:
        raise TimeoutError("no answer came in time") from None
    except aiohttp.ClientResponseError:
        raise NotReached("its response is not HTTP") from None
    except aiohttp.InvalidURL:
        raise NotReached("its address is not valid") from None
    except (aiohttp.ClientError, OSError) as error:
        raise NotReached(str(error) or type(error).__name__) from None


def _url(typed: str, target: Target) -> URL:
    """Return the URL with the checked host, and the path exactly as entered, because it may be signed."""
    parts = urlsplit(typed)
    host = f"[{target.host}]" if ":" in target.host else target.host
    path = quote(f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}", safe=_KEPT_IN_URLS)
    return URL(f"{target.scheme}://{host}:{target.port}{path}", encoded=True)


async def _send(
    method: str, url: URL, headers: Mapping[str, str], body: bytes | None, resolver: CheckedResolver
) -> Answer:
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted(), resolver=resolver),
            headers={"User-Agent": "waymark", "Accept-Encoding": "identity"},
            timeout=TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        ) as session,
        session.request(method, url, data=body, headers=headers, allow_redirects=False) as response,
    ):
        return Answer(response.status, response.reason or "", response.headers, await _first_bytes(response))


async def _first_bytes(response: aiohttp.ClientResponse) -> str:
    """Return the start of the content. If the connection breaks after the headers, return what was received."""
    read = b""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            async for chunk in response.content.iter_any():
                read += chunk
                if len(read) >= ANSWER_BYTES:
                    break
    return " ".join(read[:ANSWER_BYTES].decode("utf-8", "replace").split())


def seconds_to_wait(header: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110), a number or an HTTP date, or None if it is invalid."""
    value = header.strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds()) if value else None
    except (ValueError, TypeError):
        return None
