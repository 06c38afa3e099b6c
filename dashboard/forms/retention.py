"""The forms for the retention of a job's savepoints, and for the pin and note of one savepoint."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from dashboard.forms.editing import EditForm
from dashboard.forms.spans import SpanField
from monitoring.models import AuditEntry, Job, Savepoint
from monitoring.savepoints.retention_actions import LONGEST_S, MOST_KEPT, NOTE_LIMIT, SHORTEST_S

if TYPE_CHECKING:
    JobModelForm = forms.ModelForm[Job]
    SavepointModelForm = forms.ModelForm[Savepoint]
else:
    JobModelForm = SavepointModelForm = forms.ModelForm

_WHOLE = format_lazy(_("Enter a whole number from 1 to {most}, or leave the field empty."), most=MOST_KEPT)


class RetentionForm(EditForm, JobModelForm):
    savepoints_kept = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_KEPT,
        label=_("Newest savepoints to keep"),
        help_text=_("The number of savepoints taken by Waymark. Empty: no limit by number."),
        error_messages={
            "invalid": _WHOLE,
            "min_value": _("Enter at least 1, or leave the field empty for no limit by number."),
            "max_value": format_lazy(_("Enter at most {most}."), most=MOST_KEPT),
        },
    )
    savepoints_kept_s = SpanField(
        least=SHORTEST_S,
        most=LONGEST_S,
        required=False,
        label=_("Retention period"),
        help_text=_("For example 7 d. Empty: no limit by age. A savepoint within either limit is kept."),
    )

    final_savepoints_kept = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_KEPT,
        label=_("Final savepoints to keep"),
        help_text=_("Savepoints taken when a run ended by itself. Empty: all."),
        error_messages={
            "invalid": _WHOLE,
            "min_value": _("Enter at least 1, or leave the field empty to keep all."),
            "max_value": format_lazy(_("Enter at most {most}."), most=MOST_KEPT),
        },
    )

    class Meta:
        model = Job
        fields = ("savepoints_kept", "savepoints_kept_s", "final_savepoints_kept")

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="savepoint.retention", target=f"job {self.instance.name}")


class KeepForm(EditForm, SavepointModelForm):
    class Meta:
        model = Savepoint
        fields = ("pinned", "note")
        labels: ClassVar[dict[str, Any]] = {
            "pinned": _("Pinned: exempt from the retention of the job"),
            "note": _("Note"),
        }
        widgets: ClassVar[dict[str, Any]] = {"note": forms.Textarea(attrs={"rows": 3, "maxlength": NOTE_LIMIT})}
        help_texts: ClassVar[dict[str, Any]] = {
            "note": _("The purpose of this savepoint. It is shown when you restart the job.")
        }

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        job, keep = self.instance.job, AuditEntry.objects.filter(action="savepoint.keep")
        return keep.filter(target=f"job {job.name}", details__savepoint=self.instance.pk)
