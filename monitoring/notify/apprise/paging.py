"""Services that keep alerts of their own: one for each incident, which its end closes.

Each of them knows an alert again by a key that the sender chooses; ours is the incident's number, so that whatever is
told of it later (that it is still open, that somebody else was told, that it is over) finds the alert it belongs to,
also from another worker and after a restart. Who chose an action or a key in the channel's URL has what they chose.
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

# By scheme: the attribute of Apprise's service that holds the key.
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
    """A message for each incident. Of one that is over and not listed no more is needed than whose alert to close."""
    for item in message.items:
        yield Message(f"{message.key}-{item.incident_id}", (item,))
    for incident in message.ended_unlisted:
        item = replace(message.lead, event="resolved", incident_id=incident, sentence="Resolved.", evidence={})
        yield Message(f"{message.key}-{incident}", (item,))


def aim(service: NotifyBase, scheme: str, message: Message) -> None:
    """Have the service open, or close, the alert of the message's only incident."""
    key = f"waymark-incident-{message.lead.incident_id}"
    if isinstance(service, NotifyOpsgenie):
        _aim_at_alias(service, key, message.lead.event == "resolved")
        return
    setattr(service, KEYS[scheme], key)
    setattr(service, "action", "map")  # noqa: B010 (by the type of the message, success closes; not every service has it)


def _aim_at_alias(service: NotifyOpsgenie, key: str, over: bool) -> None:
    """Apprise closes what it remembers to have opened itself; Opsgenie closes by alias, too, which needs no memory."""
    service.alias, service.action = key, "close" if over else "new"
    if not over:
        return
    fetch: Any = service._fetch  # noqa: SLF001 (no public way)

    def by_alias(method: Any, url: str, payload: Any, _params: Any = None) -> Any:
        return fetch(method, url, payload, {"identifierType": "alias"})

    service.store.set(_store_key(key), [key])
    setattr(service, "_fetch", by_alias)  # noqa: B010


def _store_key(alias: str) -> str:
    """Where NotifyOpsgenie.send looks for what it opened."""
    return hashlib.sha1(alias.encode(), usedforsecurity=False).hexdigest()[:10]
