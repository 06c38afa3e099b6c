"""Refuses requests that a web page of another site makes a browser send.

A page whose name was made to point at this machine (DNS rebinding) is recognised by its `Host`, every other foreign
page by its `Origin`. The job manager sends no CORS headers, so no foreign page can read an answer either.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from checkpointing.jobs.launching.deployment import is_loopback
from checkpointing.jobs.settings import JobManagerSettings
from checkpointing.rest.errors import RestError


def known_hosts(settings: JobManagerSettings, address: str) -> frozenset[str]:
    """Return the names of this job manager: its listening host, its address for drivers, and those of the settings."""
    hosts = (_bracketed(settings.host), urlsplit(address).netloc, *settings.more_hosts)
    return frozenset(_name_of(host) for host in hosts)


class KnownHosts:
    """ASGI middleware that answers 400 to an unknown `Host` and 403 to a foreign `Origin`, and refuses such handshakes.

    Known names are `names`, those of loopback, and the address at which a connection arrived. Allowed origins are the
    `Host` itself and `origins` (`flink.example`, `flink.example:8443`), for a proxy that changes the `Host`.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], origins: Collection[str]) -> None:
        self._app = app
        self._names = names
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = None if scope["type"] == "lifespan" else self._refusal(scope)
        if error is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason=str(error)[:120])(scope, receive, send)
        else:
            await error.response()(scope, receive, send)

    def _refusal(self, scope: Scope) -> RestError | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        own, _ = scope.get("server") or ("", None)
        if len(hosts) != 1 or not self._is_known(_name_of(hosts[0]), own):
            text = f"Host: {', '.join(hosts)!r} is not a name of this job manager; WAYMARK_JOBMANAGER_HOSTS may add it"
            return RestError(400, text)
        for origin in headers.getlist("origin"):
            if not self._is_own_origin(origin, hosts[0]):
                return RestError(403, f"Origin: {origin!r} is not allowed; pages of other sites may not call this API")
        return None

    def _is_known(self, name: str, own_address: str) -> bool:
        return name in self._names or is_loopback(f"//{_bracketed(name)}") or _is_same_address(name, own_address)

    def _is_own_origin(self, origin: str, host: str) -> bool:
        scheme, _, netloc = origin.lower().partition("://")
        return scheme in ("http", "https") and (netloc == host.lower() or netloc in self._origins)


def _name_of(host: str) -> str:
    """Return the name or address in `name:port`, without brackets, or "" if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _is_same_address(name: str, address: str) -> bool:
    try:
        return _plain(name) == _plain(address)
    except ValueError:
        return False


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the IPv4 address in an IPv6 one, because a socket for both shows IPv4 connections like this."""
    parsed = ipaddress.ip_address(address)
    return getattr(parsed, "ipv4_mapped", None) or parsed
