"""The client library of Kubernetes, which sends its requests through `engine.transport`.

So addresses are checked when a name is resolved, redirects are refused, and answers have limits of time and size.

The library belongs to the extra `kubernetes`, and its import takes a second and 40 MB. Import this module only where
Kubernetes is used.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlencode

from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.dynamic import DynamicClient, Resource

from monitoring.engine.connection import Connection
from monitoring.engine.transport import Answer, Transport
from monitoring.kubernetes.kinds import ResourceKind

Query = list[tuple[str, Any]]
Lines = AsyncGenerator[Answer | list[bytes], None]


class CheckedClient(ApiClient):
    """Sends requests through a Transport. They return the response with any status; a watch returns its lines."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(Configuration(host=connection.url))
        self._limit_s = connection.request_limit_s
        self._transport = Transport(connection)
        self._resources = DynamicClient(self)

    def of(self, kind: ResourceKind) -> Any:
        """Return the library's Resource. With `serialize=False`, its methods return what `request` returns."""
        return Resource(
            prefix="apis" if kind.group else "api",
            group=kind.group,
            api_version=kind.version,
            kind=kind.name,
            name=kind.plural,
            namespaced=kind.is_namespaced,
            client=self._resources,
        )

    async def request(  # the library's signature
        self,
        method: str,
        url: str,
        query_params: Query | None = None,
        headers: Mapping[str, str] | None = None,
        post_params: object = None,
        body: object = None,
        _preload_content: bool = False,
        _request_timeout: Any = None,
    ) -> Answer | Lines:
        query = query_params or []
        path = url.removeprefix(str(self.configuration.host)) + (f"?{urlencode(query)}" if query else "")
        limit_s = _request_timeout or self._limit_s
        if ("watch", "true") in query:
            return self._transport.lines(path, limit_s)
        content = None if body is None else json.dumps(body).encode()
        return await self._transport.ask(method, path, limit_s, content, (headers or {}).get("Content-Type"))

    async def close(self) -> None:
        await self._transport.close()
        await super().close()
