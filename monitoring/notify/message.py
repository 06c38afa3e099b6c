"""The message that every channel sends, and the result of sending it."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from django.conf import settings

from monitoring.alerts.runbooks import runbooks_of
from monitoring.diagnosis.diagnoses import of_incident
from monitoring.history.rows import Unreadable
from monitoring.models import (
    Channel,
    Delivery,
    IncidentEvent,
    IncidentEventKind,
    Notification,
    NotificationReason,
    Runbook,
)
from monitoring.notify.shift import Shift, from_stored, hours_of
from monitoring.notify.verdict import LISTED
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.columns import stored
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import SOURCE, Reason, render

_log = logging.getLogger(__name__)
# Characters that change the direction of the text after them.
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
EXPLAINED = 5  # with more incidents only the gravest gets a cause, because each cause needs queries


@dataclass(frozen=True)
class Item:
    """One incident in a message. `event` is a NotificationReason or "test". `job` is the name of its subject."""

    event: str
    severity: str
    kind: str
    job: str
    cluster: str
    sentence: Reason | str
    at: datetime
    incident_id: int
    incident_url: str
    job_url: str
    evidence: dict[str, object] = field(default_factory=dict)
    cause: Reason | None = None  # the likeliest cause of an unresolved incident
    runbook: str = ""  # what to do at an unresolved incident: URLs and texts

    def __post_init__(self) -> None:
        """Remove line breaks from all texts, because a job's name or an exception could forge lines of a message."""
        for name in ("job", "cluster", "evidence", "runbook"):
            object.__setattr__(self, name, one_line(getattr(self, name)))

    def text(self, language: str = SOURCE) -> str:
        return str(one_line(render(self.sentence, language)))

    def cause_text(self, language: str = SOURCE) -> str:
        return str(one_line(render(self.cause or "", language)))

    def named_text(self, language: str = SOURCE) -> str:
        """Return the sentence with the name of its job or other subject."""
        text = self.text(language)
        return text if self.job in text else f"{self.job}: {text}"


@dataclass(frozen=True)
class Message:
    """A message. `items` are the first of `total` incidents, the gravest first, and at least one.

    `summary`: the message is a shift summary, and its only item has the event "summary" and no incident.
    `key` is the same at every retry, so that the receiver can recognize a repeated message.
    """

    key: str
    items: tuple[Item, ...]
    total: int = 1
    is_digest: bool = False
    ended_unlisted: tuple[int, ...] = ()  # resolved incidents that are not in `items`
    summary: Shift | None = None

    @property
    def lead(self) -> Item:
        return self.items[0]

    @property
    def is_single(self) -> bool:
        return self.total == 1

    @property
    def unlisted(self) -> int:
        return self.total - len(self.items)


@dataclass(frozen=True)
class Sent:
    answer: Reason | str


@dataclass(frozen=True)
class Failed:
    """The message was not sent. `permanent`: no retry can help. `retry_after_s`: the receiver's Retry-After."""

    answer: Reason | str
    permanent: bool = False
    retry_after_s: float | None = None


def one_line(value: Any) -> Any:
    """Return a text with spaces in place of line breaks and other control characters, also within lists and objects."""
    match value:
        case str():
            return "".join(" " if _breaks_lines(each) else each for each in value)
        case Mapping():
            return {key: one_line(each) for key, each in value.items()}
        case list() | tuple():
            return [one_line(each) for each in value]
    return value


def _breaks_lines(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in _REORDERING


class Transport(Protocol):
    """A kind of channel. It is called in a separate thread without a database connection."""

    def check(self, channel: Channel) -> None:
        """Raise BadChannel, naming the field, when a channel with these settings could never send."""
        ...

    def send(self, channel: Channel, message: Message, now: datetime) -> Sent | Failed:
        """Send the message. Return within about 20 seconds, also if the receiver is slow. A failure is a value."""
        ...


class BadChannel(ValueError):
    """A channel's setting is invalid. The text has its field, its value (never a secret), and what is allowed."""

    def __init__(self, field: str, value: object, allowed: Reason | str) -> None:
        self.reason = NotifyReason.BAD_SETTING(field=field, value=repr(value), allowed=allowed)
        super().__init__(str(self.reason))
        self.field = field
        self.allowed = allowed


def message_of(delivery: Delivery) -> Message:
    if delivery.summary is not None:
        return summary_message(delivery.key, from_stored(delivery.summary))
    notifications = _by_severity(delivery)
    listed = notifications[:LISTED]
    changed = _newest_changes([each.event.incident_id for each in listed])
    items = [item_of(each, None if _is_over(each) else changed.get(each.event.incident_id)) for each in listed]
    explained = listed[: EXPLAINED if len(notifications) <= EXPLAINED else 1]
    for place, each in enumerate(explained):
        items[place] = replace(items[place], cause=_cause(each, delivery.created_at))
    runbooks = list(Runbook.objects.all())
    for place, each in enumerate(listed):
        if not _is_over(each):
            items[place] = replace(items[place], runbook=" · ".join(runbooks_of(each.event.incident, runbooks)))
    ended = tuple(
        each.event.incident_id for each in notifications[LISTED:] if each.reason == NotificationReason.RESOLVED
    )
    return Message(delivery.key, tuple(items), len(notifications), delivery.is_digest, ended)


def sample_message(key: str, channel: Channel, now: datetime) -> Message:
    """Return the message of the test button."""
    item = Item(
        event="test",
        severity="warning",
        kind="test",
        job="a job",
        cluster="a cluster",
        sentence=AlertReason.TEST(channel=channel.name),
        at=now,
        incident_id=0,
        incident_url=f"{_site()}/incidents/",
        job_url=f"{_site()}/",
        evidence={},
    )
    return Message(key, (item,))


def summary_message(key: str, shift: Shift) -> Message:
    item = Item(
        event="summary",
        severity="info",
        kind="shift_summary",
        job="",
        cluster="",
        sentence=NotifyReason.SHIFT(
            hours=hours_of(shift),
            opened=shift.opened,
            resolved=shift.resolved,
            unresolved=shift.unresolved,
            restarts=shift.restarts_in_total,
            failed=shift.restarts_failed,
            savepoints=shift.savepoints_failed,
            blind=shift.blind_s,
        ),
        at=shift.until_at,
        incident_id=0,
        incident_url=f"{_site()}/incidents/",
        job_url=f"{_site()}/shift/",
    )
    return Message(key, (item,), summary=shift)


def reason_of(each: Notification, hidden: tuple[int, int]) -> Reason | str:
    """Return the stored text of a resolved notification, else the incident's current text.

    `hidden`: how many other incidents the incident hides or hid, and how many of those are unresolved.
    """
    if not _is_over(each):
        return stored(each.event.incident, "sentence")
    end, (hid, left) = stored(each.event, "text"), hidden
    if not hid:
        return end
    return AlertReason.HID_SOME(end=end, hid=hid, left=left)


def item_of(each: Notification, changed: Mapping[str, object] | None = None) -> Item:
    """Return the item of a notification, which the caller should select with its event, incident, job and cluster.

    `changed`: the evidence of the incident's newest change, None if there is none.
    """
    incident = each.event.incident
    return Item(
        event=each.reason,
        severity=incident.severity,
        kind=incident.kind,
        job=incident.subject,
        cluster=incident.cluster.name if incident.cluster else "",
        sentence=stored(each, "text"),
        at=each.event.at,
        incident_id=incident.pk,
        incident_url=f"{_site()}/incidents/{incident.pk}/",
        job_url=f"{_site()}/jobs/{incident.job_id}/" if incident.job_id else f"{_site()}/clusters/",
        evidence=dict(each.event.evidence if changed is None else changed),
    )


def _by_severity(delivery: Delivery) -> Sequence[Notification]:
    relations = ("event__incident__job", "event__incident__cluster", "event__incident__rule")
    found = delivery.notifications.select_related(*relations).order_by("id")
    return sorted(found, key=lambda each: each.event.incident.severity != "critical")


def _cause(each: Notification, now: datetime) -> Reason | None:
    """Return the likeliest cause, None for a resolved incident. An error in the diagnosis must not stop a message."""
    if _is_over(each):
        return None
    try:
        found = of_incident(each.event.incident, now)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, Unreadable):
        _log.exception("incident %s cannot be explained", each.event.incident_id)
        return None
    return found[0].sentence if found else None


def _is_over(each: Notification) -> bool:
    return each.reason == NotificationReason.RESOLVED


def _newest_changes(incidents: Collection[int]) -> dict[int, Mapping[str, object]]:
    changes = IncidentEvent.objects.filter(incident__in=incidents, kind=IncidentEventKind.CHANGED)
    newest = changes.order_by("incident_id", "-at", "-id").distinct("incident_id")
    return dict(newest.values_list("incident_id", "evidence"))


def _site() -> str:
    return str(settings.PUBLIC_URL).rstrip("/")
