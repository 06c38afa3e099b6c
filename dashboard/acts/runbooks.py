"""Save and remove runbooks."""

from __future__ import annotations

from django.db import transaction

from dashboard.forms.runbook import RunbookForm
from monitoring import audit
from monitoring.models import Runbook


@transaction.atomic
def save_runbook(form: RunbookForm, by: str) -> Runbook:
    """Save the runbook of a valid form."""
    action, before = ("runbook.change", dict(form.initial)) if form.runbook.pk else ("runbook.add", {})
    saved = form.apply()
    saved.save()
    audit.record(by, action, f"runbook {saved}", text=saved.text, before=before)
    return saved


@transaction.atomic
def remove_runbook(runbook: Runbook, by: str) -> None:
    audit.record(by, "runbook.remove", f"runbook {runbook}", text=runbook.text)
    runbook.delete()
