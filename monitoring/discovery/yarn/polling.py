"""Poll the applications of YARN for some time, and store what has changed.

A poll lists the applications that run or wait, and then those that have ended since the last poll. So an application
that ends between the two answers is in both.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from monitoring.discovery import claims, reconciling
from monitoring.discovery.claims import Claim
from monitoring.discovery.examination import Finding
from monitoring.discovery.found import Found, Key, Unreadable
from monitoring.discovery.reconciling import MOST, Change
from monitoring.discovery.rounds import InDatabase
from monitoring.discovery.yarn import applications
from monitoring.discovery.yarn.api import ResourceManagers
from monitoring.discovery.yarn.applications import ENDED_KEPT, Application, Known, assign
from monitoring.engine.connection import BadTls, Connection, Tls, authorization_of, trust
from monitoring.engine.errors import EngineError, Malformed, RequestNotSent
from monitoring.models import DiscoverySource, WatchedKind
from monitoring.reasons.columns import columns
from monitoring.reasons.credentials import CredentialReason
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.reason import Reason
from monitoring.secret import SecretUnreadable

POLL_S = 15.0
_LIMIT_S = 15.0  # of one request
KIND = "applications.yarn"
# The clocks of YARN and Waymark may differ by this time.
_OVERLAP = timedelta(minutes=10)
# Changes are stored in parts, so that the lease is renewed between them.
_PART = 100

_TOO_MANY = DiscoveryReason.TOO_MANY(most=MOST, resource=KIND)

Now = Callable[[], datetime]


async def look(claim: Claim, in_database: InDatabase, lasts_s: float, now: Now) -> tuple[Counter[Change], Reason | str]:
    """Poll the source for `lasts_s` seconds, once at least. Return what happened to clusters, and what failed.

    Raises:
        ClaimLost: another worker reads the source now.
    """
    changes: Counter[Change] = Counter()
    until = time.monotonic() + lasts_s
    try:
        async with ResourceManagers(await in_database(lambda: _connections_of(claim.source))) as client:
            while True:
                await _poll(client, claim, in_database, changes, now)
                if until - time.monotonic() <= POLL_S:
                    return changes, ""
                await asyncio.sleep(POLL_S)
    except EngineError as error:
        return changes, error.reason


async def examine(source: DiscoverySource) -> Sequence[Finding]:
    """Return how many applications of each kind run or wait. Raise EngineError."""
    async with ResourceManagers(_connections_of(source)) as client:
        live = await client.live(source.application_tags, MOST + 1)
    selected, problem = _read(live, source)
    if len(live) > MOST:
        problem = _TOO_MANY
    found = [applications.found(each, each.key, source.address_pattern) for each in selected]
    counts = Counter(each.key.kind for each in found)
    hidden = next((each.problem for each in found if each.problem and each.state["application"] == "RUNNING"), None)
    problems = {applications.FLINK: problem or hidden or ""}
    return [Finding(kind, count=counts[kind], problem=problems.get(kind, "")) for kind in applications.NAMES]


async def _poll(
    client: ResourceManagers, claim: Claim, in_database: InDatabase, changes: Counter[Change], now: Now
) -> None:
    source = claim.source
    began, progress = await in_database(lambda: (now(), _progress(source)))
    since = max(began - ENDED_KEPT, (progress.listed_at or began - ENDED_KEPT) - _OVERLAP)
    live = await client.live(source.application_tags, MOST + 1)
    ended = await client.ended(since, source.application_tags, MOST + 1)
    selected, problem = _read((*live, *ended), source)
    if is_incomplete := max(len(live), len(ended)) > MOST:
        problem = _TOO_MANY
    known = await in_database(lambda: _known(source, selected))
    assigned = list(assign(selected, known))
    work = list(_changed(assigned, known, source.address_pattern))
    for start in range(0, len(work), _PART):
        part = work[start : start + _PART]
        has_room = await in_database(lambda part=part: _apply(claim, part, changes, now))  # type: ignore[misc]
        problem = problem if has_room else _TOO_MANY
    gone = _gone(selected, assigned, known, began, is_incomplete=is_incomplete)
    for start in range(0, len(gone), _PART):
        keys = gone[start : start + _PART]
        await in_database(lambda keys=keys: _forget(claim, keys, changes, now))  # type: ignore[misc]
    await in_database(lambda: _note(claim, progress, began, problem, now))


def _progress(source: DiscoverySource) -> WatchedKind:
    return WatchedKind.objects.get_or_create(source=source, kind=KIND, namespace="")[0]


def _read(listed: Sequence[Any], source: DiscoverySource) -> tuple[list[Application], Reason | None]:
    """Return the applications that the source selects, and a problem with the others. The last value of one counts."""
    found: dict[str, Application] = {}
    unreadable: list[str] = []
    for each in listed:
        try:
            application = applications.read(each)
        except Unreadable as error:
            unreadable.append(error.name)
            continue
        if applications.is_selected(application, source.queue_list, source.user_list):
            found[application.id] = application
    if not unreadable:
        return list(found.values()), None
    problem = DiscoveryReason.UNREADABLE(count=len(unreadable), resource=KIND, name=unreadable[0])
    return list(found.values()), problem


def _known(source: DiscoverySource, selected: Sequence[Application]) -> list[Known]:
    """Return the rows that are shown, and those that may belong to the selected applications."""
    ids, names = {each.id for each in selected}, {each.key.name for each in selected}
    rows = source.found_resources.filter(kind__in=applications.NAMES)
    rows = rows.filter(Q(gone_at=None) | Q(uid__in=ids) | Q(name__in=names))
    values = rows.values_list("kind", "namespace", "name", "uid", "version", "state", "changed_at", "gone_at")
    return [Known(Key(*row[:3]), *row[3:7], is_gone=row[7] is not None) for row in values.iterator()]


def _changed(
    assigned: Iterable[tuple[Key, Application]], known: Iterable[Known], address_pattern: str
) -> Iterator[Found]:
    stored = {row.key: (row.id, row.version) for row in known if not row.is_gone}
    for key, application in assigned:
        found = applications.found(application, key, address_pattern)
        if stored.get(key) != (found.uid, found.version):
            yield found


def _gone(
    selected: Iterable[Application],
    assigned: Iterable[tuple[Key, Application]],
    known: Iterable[Known],
    now: datetime,
    *,
    is_incomplete: bool,
) -> list[Key]:
    """Return the rows whose application is no longer listed, or ended long ago."""
    listed = {application.id for application in selected}
    last = {key: application.id for key, application in assigned}
    gone = []
    for row in known:
        if row.is_gone or last.get(row.key, row.id) != row.id:
            continue  # it has another application now
        if row.is_over(now) if row.has_ended else row.id not in listed and not is_incomplete:
            gone.append(row.key)
    return gone


def _apply(claim: Claim, part: Iterable[Found], changes: Counter[Change], now: Now) -> bool:
    """Store the resources, and return whether there was room for all."""
    has_room = True
    for found in part:
        try:
            change = reconciling.apply(claim, found, now())
        except Malformed:
            has_room = False
            continue
        if change is not None:
            changes[change] += 1
    return has_room


def _forget(claim: Claim, keys: Iterable[Key], changes: Counter[Change], now: Now) -> None:
    for key in keys:
        change = reconciling.forget(claim, key, now(), DiscoveryReason.APPLICATION_GONE)
        if change is not None:
            changes[change] += 1


def _note(claim: Claim, progress: WatchedKind, listed_at: datetime, problem: Reason | None, now: Now) -> None:
    """Store the progress while the claim is held."""
    claims.renew(claim, now())
    WatchedKind.objects.filter(pk=progress.pk).update(listed_at=listed_at, **columns("problem", problem or ""))
    DiscoverySource.objects.filter(pk=claim.source.pk).update(last_answer_at=now())


def _connections_of(source: DiscoverySource) -> list[Connection]:
    """Return a connection for each address of the source.

    Raises:
        RequestNotSent: a secret cannot be read, the CA bundle cannot be used, or an address is not allowed.
    """
    tls = Tls(source.ca_bundle)
    try:
        trust(tls)
        authorization = authorization_of(source)
    except BadTls as error:
        raise RequestNotSent(error.reason) from error
    except SecretUnreadable as error:
        raise RequestNotSent(CredentialReason.UNREADABLE(server=source.name, why=error.reason)) from error
    made = [Connection(address, authorization, tls, _LIMIT_S) for address in source.address_list]
    for connection in made:
        connection.require_allowed()
    return made
