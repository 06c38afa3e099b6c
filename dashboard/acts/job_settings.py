"""Save the automation settings of a job and the retention of its savepoints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from dashboard.forms.automation import AutomationForm
from dashboard.forms.retention import RetentionForm
from monitoring import audit
from monitoring.job_defaults import record_own
from monitoring.recovery.run_schedule import set_run_schedule
from monitoring.savepoints.schedule import set_schedule


@transaction.atomic
def save_automation(form: AutomationForm, by: str, now: datetime) -> None:
    """Save the automation settings from a valid form, and write an audit entry with the differences."""
    changed = form.save(commit=False)
    if "automation_note" in form.changed_data:
        changed.automation_note_value = None
    changed.save(update_fields=[*form.Meta.fields, "automation_note_value", "automation_paused_until"])
    if form.schedule_changed:
        set_schedule(changed, form.timetable, by, now)
    if form.run_schedule_changed:
        set_run_schedule(changed, form.run_timetable, by, now)
    record_own(changed, form.changed_data)
    was, is_now = _difference(form)
    audit.record(by, "job.automation", f"job {changed.name}", changed.automation_note, was=was, now=is_now)


@transaction.atomic
def save_retention(form: RetentionForm, by: str) -> None:
    """Save the retention from a valid form, and write an audit entry with the differences."""
    was, now = _difference(form)
    changed = form.save(commit=False)
    changed.save(update_fields=form.Meta.fields)
    record_own(changed, form.changed_data)
    audit.record(by, "savepoint.retention", f"job {form.instance.name}", "", was=was, now=now)


def _difference(form: AutomationForm | RetentionForm) -> tuple[dict[str, Any], dict[str, Any]]:
    was = {name: form.initial.get(name) for name in form.changed_data}
    return was, {name: form.cleaned_data[name] for name in form.changed_data}
