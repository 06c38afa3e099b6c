"""List, watch, read, create, change and delete resources of a Kubernetes API, with the library kubernetes_asyncio.

Failures raise EngineError with the reason:

    Unreachable   no answer, or one that broke off
    NotFound      404: Kubernetes does not have this kind of resources, or the resource
    Conflict      409: the resource was changed since it was read, or it exists already
    Refused       any other error answer, with its status
    Expired       410: the version or the page is too old, so the resources have to be listed again
    Malformed     the answer is not what the API promises
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

from monitoring.engine.connection import Connection
from monitoring.engine.errors import ConnectionFailure, EngineError, Malformed, NotFound, Refused, Unreachable
from monitoring.engine.fields import decode
from monitoring.engine.silence import unreachable
from monitoring.engine.transport import Answer
from monitoring.kubernetes.kinds import ACCESS_REVIEW, Json, ResourceKind, object_in, version_of
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

PAGE = 500
# A server that is not Kubernetes may return pages without end.
_MOST_PAGES = 1000
# After the server's own limit, a watch has this long to end.
_WATCH_ENDS_S = 10.0


class Expired(EngineError):
    def __init__(self) -> None:
        super().__init__(DiscoveryReason.VERSION_GONE())


class Conflict(EngineError):
    def __init__(self) -> None:
        super().__init__(DiscoveryReason.CHANGED_MEANWHILE())


@dataclass(frozen=True)
class Page:
    """A page of a list. `version` is that of the whole list. `continues`: there are more pages."""

    items: Sequence[Any]
    version: str
    continues: bool = False


@dataclass(frozen=True)
class Change:
    """A change: ADDED, MODIFIED, DELETED, or BOOKMARK, which only has a version."""

    type: str
    resource: Any

    @property
    def version(self) -> str:
        return version_of(self.resource)


class KubernetesApi:
    """A client. It belongs to one event loop. Use it with `async with`, which closes its connections."""

    def __init__(self, connection: Connection) -> None:
        from monitoring.kubernetes.client import CheckedClient

        self._url = connection.url
        self._limit_s = connection.request_limit_s
        self._client = CheckedClient(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()

    async def pages(self, kind: ResourceKind, namespace: str, selector: str) -> AsyncGenerator[Page, None]:
        """Yield the pages of a list."""
        following = None
        for _number in range(_MOST_PAGES):
            request = self._client.of(kind).get(
                namespace=namespace, limit=PAGE, _continue=following, **_selectors(kind, selector), serialize=False
            )
            found = await self._ask(request, "list", kind, namespace)
            items = found.get("items") if isinstance(found, dict) else None
            metadata = found.get("metadata") if isinstance(found, dict) else None
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise Malformed(DiscoveryReason.NOT_A_LIST(path=kind.path(namespace)))
            following = metadata.get("continue")
            yield Page(items, version_of(found), continues=bool(following))
            if not following or not isinstance(following, str):
                return
        raise Malformed(DiscoveryReason.TOO_MANY_PAGES(path=kind.path(namespace), most=_MOST_PAGES))

    async def watch(
        self, kind: ResourceKind, namespace: str, selector: str, version: str, lasts_s: float
    ) -> AsyncGenerator[list[Change], None]:
        """Yield the changes after `version`, as they arrive. The server ends the watch after `lasts_s` seconds."""
        lasts_s = max(1, round(lasts_s))
        limit_s = lasts_s + _WATCH_ENDS_S
        try:
            lines = await self._client.of(kind).get(
                namespace=namespace,
                watch="true",
                query_params=[("allowWatchBookmarks", "true")],
                resource_version=version,
                timeout_seconds=lasts_s,
                _request_timeout=limit_s,
                **_selectors(kind, selector),
                serialize=False,
            )
            async with aclosing(lines) as answer:
                async for part in answer:
                    if isinstance(part, Answer):
                        raise self._refusal(part, kind, namespace, "watch")
                    yield [self._change(line, kind, namespace) for line in part]
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            raise self._silent(kind.path(namespace), limit_s, error) from error

    async def read(self, kind: ResourceKind, namespace: str, name: str) -> Json:
        request = self._client.of(kind).get(name, namespace, serialize=False)
        return await self._one(request, "get", kind, namespace, name)

    async def create(self, kind: ResourceKind, namespace: str, resource: Json) -> Json:
        """Create the resource. Raise Conflict if there is one with its name."""
        request = self._client.of(kind).create(resource, namespace, serialize=False)
        return await self._one(request, "create", kind, namespace)

    async def change(self, kind: ResourceKind, namespace: str, name: str, patch: Json) -> Json:
        """Apply a JSON merge patch, and return the changed resource.

        Raise Conflict if the patch has a resourceVersion and the resource has another one.
        """
        request = self._client.of(kind).patch(
            patch, name, namespace, content_type="application/merge-patch+json", serialize=False
        )
        return await self._one(request, "patch", kind, namespace, name)

    async def delete(self, kind: ResourceKind, namespace: str, name: str) -> None:
        request = self._client.of(kind).delete(name, namespace, serialize=False)
        await self._ask(request, "delete", kind, namespace, name)

    async def require_right(self, verb: str, kind: ResourceKind, namespace: str) -> None:
        """Raise Refused if the account may not use the verb for these resources."""
        wanted = {"verb": verb, "group": kind.group, "resource": kind.plural, "namespace": namespace}
        request = self._client.of(ACCESS_REVIEW).create({"spec": {"resourceAttributes": wanted}}, serialize=False)
        answer = await self._ask(request, "create", ACCESS_REVIEW, "")
        if object_in(object_in(answer).get("status")).get("allowed") is not True:
            raise self._error(403, {}, kind, namespace, verb)

    async def _one(
        self, request: Awaitable[Answer], verb: str, kind: ResourceKind, namespace: str, name: str = ""
    ) -> Json:
        found = await self._ask(request, verb, kind, namespace, name)
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise Malformed(DiscoveryReason.NOT_A_RESOURCE(path=kind.path(namespace, name)))
        return found

    async def _ask(
        self, request: Awaitable[Answer], verb: str, kind: ResourceKind, namespace: str, name: str = ""
    ) -> object:
        try:
            answer = await request
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            raise self._silent(kind.path(namespace, name), self._limit_s, error) from error
        if not 200 <= answer.status < 300:
            raise self._refusal(answer, kind, namespace, verb, name)
        return decode(answer.content)

    def _change(self, line: bytes, kind: ResourceKind, namespace: str) -> Change:
        found = decode(line)
        if not isinstance(found, dict) or not isinstance(found.get("object"), dict):
            raise Malformed(DiscoveryReason.NOT_A_CHANGE(path=kind.path(namespace)))
        if found.get("type") == "ERROR":
            raise self._error(found["object"].get("code"), found["object"], kind, namespace, "watch")
        return Change(str(found.get("type")), found["object"])

    def _silent(self, path: str, limit_s: float, error: Exception) -> Unreachable:
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
            reason = EngineReason.TOO_SLOW(url=self._url, path=path, limit_s=limit_s)
            return Unreachable(reason, ConnectionFailure.TIMED_OUT)
        return unreachable(self._url, error)

    def _refusal(self, answer: Answer, kind: ResourceKind, namespace: str, verb: str, name: str = "") -> EngineError:
        try:
            status = decode(answer.content)
        except Malformed:
            status = {}
        return self._error(answer.status, status if isinstance(status, dict) else {}, kind, namespace, verb, name)

    def _error(
        self, code: object, status: Json, kind: ResourceKind, namespace: str, verb: str, name: str = ""
    ) -> EngineError:
        match code:
            case 401:
                return Refused(401, DiscoveryReason.LOG_IN_REFUSED(url=self._url))
            case 403:
                return Refused(403, DiscoveryReason.FORBIDDEN(verb=verb, resource=kind.key, where=_where(namespace)))
            case 404 if name:
                return NotFound(DiscoveryReason.RESOURCE_MISSING(resource=f"{kind.name} {namespace}/{name}"))
            case 404:
                return NotFound(DiscoveryReason.NOT_INSTALLED(resource=kind.key))
            case 409:
                return Conflict()
            case 410:
                return Expired()
        number = code if isinstance(code, int) else 500
        values = {
            "url": self._url,
            "path": kind.path(namespace, name),
            "message": str(status.get("message") or "")[:500],
        }
        return Refused(number, DiscoveryReason.SERVER_ERROR(status=number, **values))


def _selectors(kind: ResourceKind, labels: str) -> dict[str, str | None]:
    return {"label_selector": labels or None, "field_selector": kind.fields or None}


def _where(namespace: str) -> Reason:
    return DiscoveryReason.IN_NAMESPACE(namespace=namespace) if namespace else DiscoveryReason.IN_ALL_NAMESPACES()
