"""Apply a plan in one transaction."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from dashboard.access.roles import Role
from dashboard.as_code.base import Change, Plan
from dashboard.as_code.plan import plan
from monitoring import audit
from monitoring.job_defaults import apply_defaults
from monitoring.models import AppliedText


class NotApplied(Exception):
    """The text has problems, so nothing was changed."""

    def __init__(self, made: Plan) -> None:
        self.plan = made
        super().__init__("\n".join(str(problem) for problem in made.problems))


@transaction.atomic
def apply(text: str, role: Role, by: str, now: datetime, *, prune: bool = False) -> list[Change]:
    """Plan the import again and apply it in the same transaction.

    With `prune`, what is not in the sections of the text is removed. Channels stay, because they may be in use
    elsewhere. Jobs get default settings.

    Raises:
        NotApplied: The text has problems.
    """
    # The lock makes a second user wait, whose plan then starts from the result.
    row, _ = AppliedText.objects.select_for_update().get_or_create(source="")
    made = plan(text, role)
    if made.problems:
        raise NotApplied(made)
    changes = carry_out(made, by, now, prune=prune)
    row.text, row.applied_at, row.applied_by = text, now, by
    row.save()
    return changes


def carry_out(made: Plan, by: str, now: datetime, *, prune: bool = False) -> list[Change]:
    """Make the changes of a plan without problems. The caller holds the transaction."""
    steps = [*made.steps, *(made.removals if prune else [])]
    for step in steps:
        step.act(by, now)
    for act in made.final:
        act(by, now)
    changes = [step.change for step in steps]
    if changes:
        apply_defaults(by, now)
        summary = "; ".join(f"{change.verb} {change.what}" for change in changes)
        audit.record(by, "code.apply", "configuration", changes=summary[:5000])
    return changes
