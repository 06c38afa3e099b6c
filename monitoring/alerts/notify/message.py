"""What every channel gets to say, and what a channel answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from django.conf import settings

from monitoring.models import Channel, Delivery


@dataclass(frozen=True)
class Message:
    """`key` is the same at every retry: the receiver may tell a repeated message by it."""

    key: str
    event: str  # opened, resolved
    severity: str
    job: str
    cluster: str
    sentence: str
    at: datetime
    incident_id: int
    incident_url: str
    job_url: str
    evidence: dict[str, object] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        named = self.sentence if self.job in self.sentence else f"{self.job}: {self.sentence}"
        return f"[{self.event}] {named}"


@dataclass(frozen=True)
class Sent:
    answer: str


@dataclass(frozen=True)
class Failed:
    """`permanent`: no retry can help. `retry_after_s`: the receiver's own wish."""

    answer: str
    permanent: bool = False
    retry_after_s: float | None = None


class Transport(Protocol):
    """One kind of channel. Called in a thread of its own, without a database connection."""

    def check(self, settings: dict[str, object]) -> None:
        """Raise BadChannel, naming the field, when a channel with these settings could never send."""
        ...

    def send(self, channel: Channel, message: Message, now: datetime) -> Sent | Failed:
        """Return within about 20 seconds whatever the receiver does; its failure is a value, not an exception."""
        ...


class BadChannel(ValueError):
    """A channel's setting makes no sense: which one, what it is, what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}: {allowed}.")
        self.field = field


def message_of(delivery: Delivery) -> Message:
    """Reads event, incident, job and cluster: select them together with the delivery."""
    event = delivery.event
    incident = event.incident
    return Message(
        key=delivery.key,
        event=event.kind,
        severity=incident.severity,
        job=incident.subject,
        cluster=incident.cluster.name if incident.cluster else "",
        sentence=event.text,
        at=event.at,
        incident_id=incident.pk,
        incident_url=f"{_site()}/incidents/{incident.pk}/",
        job_url=f"{_site()}/jobs/{incident.job_id}/" if incident.job_id else f"{_site()}/clusters/",
        evidence=event.evidence,
    )


def _site() -> str:
    return str(settings.PUBLIC_URL).rstrip("/")
