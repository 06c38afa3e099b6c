"""Read one page of each kind of resources, and watch for a second, to see which rights the account has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from monitoring.discovery.examination import Finding
from monitoring.engine.errors import EngineError, NotFound
from monitoring.kubernetes.api import KubernetesApi, Page
from monitoring.kubernetes.credentials import connection_of
from monitoring.kubernetes.kinds import KINDS, ResourceKind
from monitoring.models import DiscoverySource

_AT_ONCE = 16
_WATCH_S = 1.0


async def examine(source: DiscoverySource) -> Sequence[Finding]:
    """Return what was found of each kind in each namespace. Raise EngineError if there is no connection to open."""
    client = KubernetesApi(connection_of(source))
    few = asyncio.Semaphore(_AT_ONCE)

    async def limited(kind: ResourceKind, namespace: str) -> Finding:
        async with few:
            return await _read(client, source, kind, namespace)

    try:
        tasks = [limited(kind, namespace) for kind in KINDS for namespace in source.namespace_list]
        return await asyncio.gather(*tasks)
    finally:
        await client.close()


async def _read(client: KubernetesApi, source: DiscoverySource, kind: ResourceKind, namespace: str) -> Finding:
    selector = source.label_selector if kind.selector is None else kind.selector
    page = Page((), "")
    try:
        async with aclosing(client.pages(kind, namespace, selector)) as pages:
            page = await anext(pages)
        async with aclosing(client.watch(kind, namespace, selector, page.version, _WATCH_S)) as changes:
            async for _change in changes:
                pass
    except NotFound as error:
        return Finding(kind.key, namespace, problem=error.reason, is_missing=True)
    except EngineError as error:
        return Finding(kind.key, namespace, len(page.items), page.continues, error.reason)
    return Finding(kind.key, namespace, len(page.items), page.continues)
