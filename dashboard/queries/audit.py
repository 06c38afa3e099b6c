"""Search the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from monitoring.models import AuditEntry


@dataclass(frozen=True)
class AuditFilter:
    """Conditions for entries of the audit log. An empty value matches every entry.

    `text` is searched in the actor and in the target. An `action` that ends with a dot matches all actions with this
    prefix. The time `until` is excluded.
    """

    text: str = ""
    actor: str = ""
    action: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_narrow(self) -> bool:
        return self != AuditFilter()


def find_entries(chosen: AuditFilter) -> QuerySet[AuditEntry]:
    """Return the matching entries, newest first."""
    found = AuditEntry.objects.all()
    if text := _plain(chosen.text):
        found = found.filter(Q(target__icontains=text) | Q(actor__icontains=text))
    if actor := _plain(chosen.actor):
        found = found.filter(actor=actor)
    if action := _plain(chosen.action):
        found = found.filter(action__startswith=action) if action.endswith(".") else found.filter(action=action)
    if chosen.since is not None:
        found = found.filter(at__gte=chosen.since)
    return found if chosen.until is None else found.filter(at__lt=chosen.until)


def _plain(text: str) -> str:
    """Remove NUL characters, which PostgreSQL does not accept in text."""
    return text.replace("\0", "").strip()
