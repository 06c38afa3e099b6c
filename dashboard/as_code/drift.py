"""Drift: what was changed since a YAML text was applied."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.access.roles import Role
from dashboard.as_code.base import Plan
from dashboard.as_code.plan import plan
from monitoring.models import AppliedText


@dataclass(frozen=True)
class Drift:
    """`plan` has the changes that applying the same text again would make."""

    applied: AppliedText
    plan: Plan

    @property
    def extra(self) -> list[str]:
        """Return the stored objects that the text lacks: none for the inventory file, as others may add clusters."""
        return [] if self.applied.source else [step.change.what for step in self.plan.removals]


def drifts(role: Role) -> list[Drift]:
    """Return the drift from each applied text, as far as the role may see its sections."""
    applied = AppliedText.objects.exclude(applied_at=None, problems=[]).order_by("source")
    if role < Role.ADMIN:
        applied = applied.filter(source="")  # the inventory file has only clusters
    return [Drift(each, plan(each.text, role, lenient=True)) for each in applied]
