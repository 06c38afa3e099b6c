"""Which savepoints of a job stay, and what a person says of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from dashboard.forms.spans import SpanField
from monitoring.models import Job, Savepoint
from monitoring.savepoints.keeping import LONGEST_S, MOST_KEPT, NOTE_LIMIT, SHORTEST_S

if TYPE_CHECKING:
    JobModelForm = forms.ModelForm[Job]
    SavepointModelForm = forms.ModelForm[Savepoint]
else:
    JobModelForm = SavepointModelForm = forms.ModelForm


class RetentionForm(JobModelForm):
    savepoints_kept = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_KEPT,
        label=_("Keep the newest"),
        help_text=_("How many of those that Waymark took. Empty: not counted."),
        error_messages={
            "invalid": format_lazy(_("Write a whole number, from 1 to {most}, or nothing."), most=MOST_KEPT),
            "min_value": _("At least 1; empty: not counted."),
            "max_value": format_lazy(_("At most {most}."), most=MOST_KEPT),
        },
    )
    savepoints_kept_s = SpanField(
        least=SHORTEST_S,
        most=LONGEST_S,
        required=False,
        label=_("Keep those of the last"),
        help_text=_("Such as 7 d. Empty: age does not count. With both, a savepoint goes only when neither keeps it."),
    )

    final_savepoints_kept = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_KEPT,
        label=_("Final savepoints to keep"),
        help_text=_("Those that were taken when a run ended by itself. Empty: all."),
        error_messages={
            "invalid": format_lazy(_("Write a whole number, from 1 to {most}, or nothing."), most=MOST_KEPT),
            "min_value": _("At least 1; empty: all."),
            "max_value": format_lazy(_("At most {most}."), most=MOST_KEPT),
        },
    )

    class Meta:
        model = Job
        fields = ("savepoints_kept", "savepoints_kept_s", "final_savepoints_kept")


class KeepForm(SavepointModelForm):
    class Meta:
        model = Savepoint
        fields = ("pinned", "note")
        labels: ClassVar[dict[str, Any]] = {
            "pinned": _("Pinned: kept whatever the job's retention says"),
            "note": _("Note"),
        }
        widgets: ClassVar[dict[str, Any]] = {"note": forms.Textarea(attrs={"rows": 3, "maxlength": NOTE_LIMIT})}
        help_texts: ClassVar[dict[str, Any]] = {
            "note": _("What this state is good for; people see it when they restart.")
        }
