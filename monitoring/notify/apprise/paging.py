"""Paging services with their own alerts: Waymark opens one alert for each incident and closes it at the end.

Such a service identifies an alert by a key of the sender. Waymark's key is the incident's number, so that later
messages (repeated, escalated, resolved) update the same alert, also from another worker and after a restart. If the
channel's URL sets an action or a key, these are used instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from apprise.plugins.base import NotifyBase
from apprise.plugins.opsgenie import NotifyOpsgenie

from monitoring.notify.message import Message

# The attribute of Apprise's service with the key, by URL scheme.
KEYS = {
    "pagerduty": "dedup",
    "opsgenie": "alias",
    "ilert": "dedup",
    "incidentio": "dedup",
    "squadcast": "dedup",
    "firehydrant": "dedup",
    "goalert": "dedup",
    "goalerts": "dedup",
    "signl4": "external_id",
    "pagertree": "thirdparty",
    "victorops": "entity_id",
    "splunk": "entity_id",
}
_CHOSEN = frozenset({"action", "dedup", "alias", "external_id", "thirdparty", "tid", "entity_id"})


def pages(scheme: str, url: str) -> bool:
    chosen = {name.lower() for name, _ in parse_qsl(urlsplit(url).query, True)}
    return scheme in KEYS and not chosen & _CHOSEN


def one_by_one(message: Message) -> Iterator[Message]:
    """Yield a message for each incident.

    A resolved incident that the message does not list gets a minimal message, which closes its alert.
    """
    for item in message.items:
        yield Message(f"{message.key}-{item.incident_id}", (item,))
    for incident in message.ended_unlisted:
        item = replace(
            message.lead, event="resolved", incident_id=incident, sentence="Resolved.", evidence={}, runbook=""
        )
        yield Message(f"{message.key}-{incident}", (item,))


def aim(service: NotifyBase, scheme: str, message: Message) -> None:
    """Set up the service to open, or close, the alert of the message's only incident."""
    key = f"waymark-incident-{message.lead.incident_id}"
    if isinstance(service, NotifyOpsgenie):
        _aim_at_alias(service, key, message.lead.event == "resolved")
        return
    setattr(service, KEYS[scheme], key)
    setattr(service, "action", "map")  # noqa: B010 (success closes the alert; not every service has it)


def _aim_at_alias(service: NotifyOpsgenie, key: str, over: bool) -> None:
    """Open or close an Opsgenie alert by its alias.

    Apprise closes only alerts that are in its own store, so the alert is entered there first.
    """
    service.alias, service.action = key, "close" if over else "new"
    if not over:
        return
    fetch: Any = service._fetch  # noqa: SLF001 (no public way)

    def by_alias(method: Any, url: str, payload: Any, _params: Any = None) -> Any:
        return fetch(method, url, payload, {"identifierType": "alias"})

    service.store.set(_store_key(key), [key])
    setattr(service, "_fetch", by_alias)  # noqa: B010


def _store_key(alias: str) -> str:
    """Return the key under which NotifyOpsgenie.send stores its open alerts."""
    return hashlib.sha1(alias.encode(), usedforsecurity=False).hexdigest()[:10]
