"""The one door to the audit log."""

from __future__ import annotations

from monitoring.models import AuditEntry
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason

AUTOMATION = "waymark"
ANONYMOUS = "anonymous"  # did not prove who it is


def record(actor: str, action: str, target: str, reason: Reason | str = "", **details: object) -> AuditEntry:
    """Write down that `actor` (a user's name, AUTOMATION or ANONYMOUS) did `action` to `target`.

    `details` must be JSON values and must not hold secrets. Written in the caller's transaction: an act that is rolled
    back leaves no entry.
    """
    return AuditEntry.objects.create(
        actor=actor[:150], action=action[:100], target=target[:600], details=details, **columns("reason", reason)
    )
