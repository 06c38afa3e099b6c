"""Save and delete objectives."""

from __future__ import annotations

from django.db import transaction

from dashboard.forms.objective import ObjectiveForm, target_of
from monitoring import audit
from monitoring.models import Objective


@transaction.atomic
def save_objective(form: ObjectiveForm, by: str) -> Objective:
    """Save an objective from a valid form. The worker measures its budgets within a minute."""
    before = values_of(form.objective) if form.objective.pk else {}
    objective = form.apply()
    objective.save()
    now = {name: value for name, value in values_of(objective).items() if before.get(name) != value}
    audit.record(by, "objective.change", target_of(objective), now=now, before=before)
    return objective


@transaction.atomic
def remove_objective(objective: Objective, by: str) -> None:
    audit.record(by, "objective.remove", target_of(objective), before=values_of(objective))
    objective.delete()


def values_of(objective: Objective) -> dict[str, str]:
    """Return the values of the objective for the audit log."""
    own = {"selector": objective.selector, "percent": f"{objective.percent:g}"}
    return own | {"limit_ms": str(objective.limit_ms), "days": str(objective.days)}
