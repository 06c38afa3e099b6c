"""Read one page of each kind of resources, and watch for a second, to see which rights the account has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from monitoring.discovery.examination import Finding
from monitoring.engine.errors import EngineError, NotFound
from monitoring.kubernetes.api import KubernetesApi, Page
from monitoring.kubernetes.credentials import connection_of
from monitoring.kubernetes.kinds import FLINK_SNAPSHOT, JOB_KINDS, KINDS, ResourceKind
from monitoring.models import DiscoverySource

_AT_ONCE = 16
_WATCH_S = 1.0
# The verbs of restarts and savepoints through the operator.
_VERBS = {
    **dict.fromkeys(JOB_KINDS, ("get", "patch")),
    FLINK_SNAPSHOT.key: ("get", "create", "delete"),
}


async def examine(source: DiscoverySource) -> Sequence[Finding]:
    """Return what was found of each kind in each namespace. Raise EngineError if there is no connection to open."""
    few = asyncio.Semaphore(_AT_ONCE)

    async def limited(client: KubernetesApi, kind: ResourceKind, namespace: str) -> Finding:
        async with few:
            return await _read(client, source, kind, namespace)

    async with KubernetesApi(connection_of(source)) as client:
        tasks = [limited(client, kind, namespace) for kind in KINDS for namespace in source.namespace_list]
        found = await asyncio.gather(*tasks)
        return [await _with_rights(client, source, finding) for finding in found]


async def _with_rights(client: KubernetesApi, source: DiscoverySource, finding: Finding) -> Finding:
    """Add the first right that restarts and savepoints through the operator need and the account lacks."""
    if not source.may_change_resources or finding.problem:
        return finding
    kind = next(kind for kind in KINDS if kind.key == finding.kind)
    try:
        for verb in _VERBS.get(kind.key, ()):
            await client.require_right(verb, kind, finding.namespace)
    except EngineError as error:
        return replace(finding, problem=error.reason)
    return finding


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
