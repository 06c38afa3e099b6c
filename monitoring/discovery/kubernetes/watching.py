"""Read a Kubernetes API for some time: list what was not read yet, then watch its changes.

The stored version is that of the last change that is applied, and is stored after it. So a change may be applied twice,
but none is missed. If Kubernetes no longer has the changes since the stored version (410), the resources are listed
again, and those that are not in the list are gone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

from monitoring.discovery import claims, reconciling
from monitoring.discovery.claims import Claim
from monitoring.discovery.found import Key, Unreadable
from monitoring.discovery.kubernetes import resources
from monitoring.discovery.kubernetes.snapshots import list_savepoints
from monitoring.discovery.reconciling import Change
from monitoring.discovery.rounds import InDatabase
from monitoring.engine.errors import EngineError, Malformed, NotFound, Refused, Unreachable
from monitoring.kubernetes import api
from monitoring.kubernetes.api import Expired, KubernetesApi
from monitoring.kubernetes.credentials import connection_of
from monitoring.kubernetes.kinds import KINDS, version_of
from monitoring.models import DiscoverySource, WatchedKind
from monitoring.reasons.columns import columns
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.reason import Reason

_TRIES = 3
_PAUSE_S = 0.2
_SHORTEST_S = 0.5

Now = Callable[[], datetime]


async def look(claim: Claim, in_database: InDatabase, lasts_s: float, now: Now) -> tuple[Counter[Change], Reason | str]:
    """Read the source for `lasts_s` seconds. Return what happened to clusters, and why the API could not be used.

    Raises:
        ClaimLost: another worker reads the source now.
    """
    changes: Counter[Change] = Counter()
    try:
        connection = await in_database(lambda: connection_of(claim.source))
    except EngineError as error:
        return changes, error.reason
    async with KubernetesApi(connection) as client:
        watches = await in_database(lambda: [_Watch(client, claim, row, changes, now) for row in _rows(claim, now)])
        until = time.monotonic() + lasts_s
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch.follow(in_database, until)) for watch in watches]
    await in_database(lambda: list_savepoints(claim.source, now()))
    failures = [task.result() for task in tasks]
    return changes, failures[0] if failures and all(failures) else ""


def _rows(claim: Claim, now: Now) -> list[WatchedKind]:
    """Return the progress of each kind and namespace, and forget what the source no longer selects."""
    source = claim.source
    rows = []
    for kind in KINDS:
        for namespace in source.namespace_list:
            row, _ = WatchedKind.objects.get_or_create(source=source, kind=kind.key, namespace=namespace)
            rows.append(row)
    source.watched_kinds.exclude(pk__in=[row.pk for row in rows]).delete()
    for key in reconciling.outside(source, [kind.key for kind in KINDS]):
        reconciling.forget(claim, key, now())
    return rows


class _Watch:
    """The list and the watch of one kind in one namespace ("": all)."""

    def __init__(
        self, client: KubernetesApi, claim: Claim, row: WatchedKind, changes: Counter[Change], now: Now
    ) -> None:
        self._client = client
        self._claim = claim
        self._row = row
        self._kind = next(kind for kind in KINDS if kind.key == row.kind)
        self._changes = changes
        self._now = now
        self._unreadable: list[str] = []

    async def follow(self, in_database: InDatabase, until: float) -> Reason | str:
        """List and watch until the monotonic time `until`. Return why the API could not be used, "" if it could."""
        tries = 0
        while True:
            try:
                if not self._row.version:
                    await self._list(in_database)
                while (left_s := until - time.monotonic()) > _SHORTEST_S:
                    await self._watch(in_database, left_s)
                    tries = 0
                    await asyncio.sleep(_PAUSE_S)  # the server may end watches at once
            except Expired:
                # The version that is stored stays until the list is applied, so that a restart lists again, too.
                self._row.version = ""
                await asyncio.sleep(_PAUSE_S)
                continue
            except NotFound as error:
                self._row.version = ""
                await in_database(lambda problem=error.reason: self._note(problem))  # type: ignore[misc]
                return ""
            except (Unreachable, Malformed, Refused) as error:
                tries += 1
                is_lasting = not isinstance(error, Unreachable)
                if is_lasting or tries >= _TRIES:
                    await in_database(lambda problem=error.reason: self._note(problem))  # type: ignore[misc]
                    return "" if isinstance(error, Refused) and error.status == 403 else error.reason
                await asyncio.sleep(_PAUSE_S * tries)
                continue
            return ""

    async def _list(self, in_database: InDatabase) -> None:
        source, kind, namespace = self._claim.source, self._kind, self._row.namespace
        known = await in_database(lambda: reconciling.known_versions(source, kind.key, namespace))
        seen: set[Key] = set()
        version = ""
        self._unreadable = []
        async with aclosing(self._client.pages(kind, namespace, self._selector)) as pages:
            async for page in pages:
                version = page.version or version
                await in_database(lambda items=page.items: self._apply_listed(items, known, seen))  # type: ignore[misc]
        await in_database(lambda: self._end_list(known.keys() - seen, version))

    async def _watch(self, in_database: InDatabase, left_s: float) -> None:
        watch = self._client.watch(self._kind, self._row.namespace, self._selector, self._row.version, left_s)
        async with aclosing(watch) as parts:
            async for changes in parts:
                await in_database(lambda part=changes: self._apply_changes(part))  # type: ignore[misc]
        await in_database(self._note_answer)

    @property
    def _selector(self) -> str:
        return self._claim.source.label_selector if self._kind.selector is None else self._kind.selector

    def _apply_listed(self, items: Sequence[Any], known: dict[Key, str], seen: set[Key]) -> None:
        for item in items:
            try:
                key = resources.key_of(self._kind, item)
            except Unreadable as error:
                self._unreadable.append(error.name)
                continue
            seen.add(key)
            if key not in known or known[key] != version_of(item):
                self._apply(item, is_known=key in known)

    def _end_list(self, gone: set[Key], version: str) -> None:
        for key in sorted(gone):
            self._count(reconciling.forget(self._claim, key, self._now()))
        self._store(version=version, listed_at=self._now(), **columns("problem", self._problem() or ""))

    def _apply_changes(self, changes: Sequence[api.Change]) -> None:
        version = self._row.version
        for change in changes:
            if change.type == "DELETED":
                self._forget(change.resource)
            elif change.type in ("ADDED", "MODIFIED"):
                self._apply(change.resource)
            version = change.version or version
        self._store(version=version)

    def _apply(self, resource: Any, *, is_known: bool = True) -> None:
        try:
            found = resources.read(self._kind, resource, self._claim.source.address_pattern)
        except Unreadable as error:
            self._unreadable.append(error.name)
            return
        if found is not None:
            self._count(reconciling.apply(self._claim, found, self._now()))
        elif is_known:
            self._forget(resource)

    def _forget(self, resource: Any) -> None:
        try:
            key = resources.key_of(self._kind, resource)
        except Unreadable:
            return
        self._count(reconciling.forget(self._claim, key, self._now()))

    def _count(self, change: Change | None) -> None:
        if change is not None:
            self._changes[change] += 1

    def _note_answer(self) -> None:
        """Clear a problem of earlier requests. That of unreadable resources stays until they are listed again."""
        stored = self._row.problem_value
        is_lasting = stored is not None and stored.code is DiscoveryReason.UNREADABLE
        problem = self._problem() or (stored if is_lasting else None)
        self._store(**columns("problem", problem or ""))

    def _problem(self) -> Reason | None:
        if not self._unreadable:
            return None
        count, name = len(self._unreadable), self._unreadable[0]
        return DiscoveryReason.UNREADABLE(count=count, resource=self._kind.key, name=name)

    def _note(self, problem: Reason | str) -> None:
        """Store a problem, and the version in memory: "" if the resources have to be listed again."""
        self._store(version=self._row.version, **columns("problem", problem))

    def _store(self, **values: Any) -> None:
        """Store the progress while the claim is held."""
        claims.renew(self._claim, self._now())
        for name, value in values.items():
            setattr(self._row, name, value)
        self._row.save(update_fields=list(values))
        DiscoverySource.objects.filter(pk=self._claim.source.pk).update(last_answer_at=self._now())
