"""List applications through the REST API of YARN's ResourceManagers, read-only, with `engine.transport`.

With high availability, there are several ResourceManagers. One on standby redirects to the active one (307), or answers
with a text if none is active. Redirects are not followed: the next address is tried. Failures raise EngineError:

    Standby       no ResourceManager is active
    Unreachable   no answer, or one that broke off
    Refused       an error answer, with its status
    Malformed     the answer is not what the API promises
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp

from monitoring.discovery.yarn.applications import ENDED, KINDS, LIVE
from monitoring.engine.connection import Connection
from monitoring.engine.errors import ConnectionFailure, EngineError, Malformed, Redirected, Refused, Unreachable
from monitoring.engine.fields import decode
from monitoring.engine.silence import unreachable
from monitoring.engine.transport import Answer, Transport
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.engines import EngineReason

APPLICATIONS = "/ws/v1/cluster/apps"
# An application has about 1.5 KB without its resource requests.
_LARGEST = 64 * 1024 * 1024
_STANDBY_TEXTS = (b"This is standby RM", b"Can not find any active RM", b"There is no active RM")


class Standby(EngineError):
    """The ResourceManager is not the active one."""


class ResourceManagers:
    """A client of all ResourceManagers of one YARN, for one event loop. `async with` closes its connections."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._servers = [_Server(connection) for connection in connections]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as stack:  # closes all, even if it is canceled meanwhile
            for server in self._servers:
                stack.push_async_callback(server.close)

    async def live(self, tags: str, most: int) -> list[Any]:
        """Return the applications that have not ended, at most `most`. `tags`: separated by commas, "" for all."""
        return await self._list({"states": ",".join(LIVE)}, tags, most)

    async def ended(self, since: datetime, tags: str, most: int) -> list[Any]:
        """Return the applications that have ended since then by the clock of YARN, at most `most`."""
        began = {"finishedTimeBegin": str(int(since.timestamp() * 1000))}
        return await self._list({"states": ",".join(ENDED), **began}, tags, most)

    async def _list(self, selected: dict[str, str], tags: str, most: int) -> list[Any]:
        query = {
            **selected,
            "applicationTypes": ",".join(KINDS),
            "deSelects": "resourceRequests",
            "limit": str(most),
            **({"applicationTags": tags} if tags else {}),
        }
        return _applications_in(await self._ask(f"{APPLICATIONS}?{urlencode(query)}"))

    async def _ask(self, path: str) -> object:
        """Return the answer of the active ResourceManager, and begin with it next time."""
        failures: list[EngineError] = []
        for server in list(self._servers):
            try:
                answer = await server.ask(path)
            except EngineError as error:
                failures.append(error)
                continue
            self._servers.remove(server)
            self._servers.insert(0, server)
            return answer
        raise next((error for error in failures if not isinstance(error, Standby)), failures[0])


class _Server:
    def __init__(self, connection: Connection) -> None:
        self._url = connection.url
        self._limit_s = connection.request_limit_s
        self._transport = Transport(connection, _LARGEST)

    async def close(self) -> None:
        await self._transport.close()

    async def ask(self, path: str) -> object:
        try:
            answer = await self._transport.ask("GET", path, self._limit_s)
        except Redirected as error:
            if error.status == 307:
                raise self._standby(error.location) from error
            raise
        except TimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise unreachable(self._url, error) from error
            reason = EngineReason.TOO_SLOW(url=self._url, path=APPLICATIONS, limit_s=self._limit_s)
            raise Unreachable(reason, ConnectionFailure.TIMED_OUT) from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise unreachable(self._url, error) from error
        if answer.content[:200].lstrip().startswith(_STANDBY_TEXTS):
            raise self._standby("")
        if answer.status != 200:
            raise self._refusal(answer)
        return decode(answer.content)

    def _standby(self, location: str) -> Standby:
        active = location.partition("/ws/")[0][:300]
        if active:
            return Standby(DiscoveryReason.STANDBY(url=self._url, active=active))
        return Standby(DiscoveryReason.NONE_ACTIVE(url=self._url))

    def _refusal(self, answer: Answer) -> Refused:
        if answer.status == 401 and "negotiate" in answer.headers.get("WWW-Authenticate", "").lower():
            return Refused(401, DiscoveryReason.KERBEROS(url=self._url))
        if answer.status == 401:
            return Refused(401, DiscoveryReason.LOG_IN_REFUSED(url=self._url))
        reason = DiscoveryReason.SERVER_ERROR(
            url=self._url, path=APPLICATIONS, status=answer.status, message=_message_in(answer)
        )
        return Refused(answer.status, reason)


def _applications_in(answer: object) -> list[Any]:
    """Return the applications. Versions of YARN differ in how they write none and one."""
    whole = answer if isinstance(answer, dict) else {}
    apps = whole.get("apps", ())
    listed = apps.get("app", []) if isinstance(apps, dict) else apps or []
    if isinstance(listed, dict):
        listed = [listed]
    if "apps" not in whole or not isinstance(listed, list):
        raise Malformed(DiscoveryReason.NO_APPLICATIONS(path=APPLICATIONS))
    return listed


def _message_in(answer: Answer) -> str:
    try:
        body = decode(answer.content)
    except Malformed:
        return ""
    error = body.get("RemoteException") if isinstance(body, dict) else None
    return str(error.get("message") or "")[:500] if isinstance(error, dict) else ""
