"""Write the audit log. All entries are created here."""

from __future__ import annotations

from monitoring.models import AuditEntry
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason

AUTOMATION = "waymark"
ANONYMOUS = "anonymous"  # a client that is not logged in


def record(actor: str, action: str, target: str, reason: Reason | str = "", **details: object) -> AuditEntry:
    """Store that `actor` (a user's name, AUTOMATION or ANONYMOUS) did `action` to `target`.

    `details` must be JSON values without secrets. The entry is stored in the caller's transaction: an action that is
    rolled back leaves no entry.
    """
    return AuditEntry.objects.create(
        actor=actor[:150], action=action[:100], target=target[:600], details=details, **columns("reason", reason)
    )
