"""What Waymark does for a job by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms

from dashboard.forms.spans import SpanField
from monitoring.models import Job
from monitoring.savepoints.schedule import LONGEST_S, SHORTEST_S

if TYPE_CHECKING:
    JobModelForm = forms.ModelForm[Job]
else:
    JobModelForm = forms.ModelForm


class AutomationForm(JobModelForm):
    savepoint_interval_s = SpanField(
        least=SHORTEST_S,
        most=LONGEST_S,
        required=False,
        label="Savepoint every",
        help_text="Such as 1 h; empty: no savepoints on a schedule.",
    )
    max_restarts_per_hour = forms.IntegerField(
        min_value=1,
        max_value=60,
        label="Restarts an hour, at most",
        help_text="Beyond it a person is needed.",
        error_messages={
            "invalid": "Write a whole number, from 1 to 60.",
            "min_value": "At least 1. To restart by hand only, clear “Restart automatically”.",
            "max_value": "At most 60.",
        },
    )

    class Meta:
        model = Job
        fields = (
            "savepoint_interval_s",
            "auto_restart",
            "restore_from",
            "max_restarts_per_hour",
            "automation_paused",
            "automation_note",
        )
        widgets: ClassVar[dict[str, Any]] = {"restore_from": forms.RadioSelect, "automation_note": forms.TextInput}
        labels: ClassVar[dict[str, str]] = {
            "auto_restart": "Restart automatically when the job dies",
            "restore_from": "Restart from",
            "automation_paused": "Pause all of this for now",
            "automation_note": "Why it is paused",
        }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("automation_paused") and not (cleaned.get("automation_note") or "").strip():
            self.add_error("automation_note", "Say why, for whoever finds the job paused.")
        return cleaned
