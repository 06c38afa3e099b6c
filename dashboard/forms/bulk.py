"""The form for one action on several jobs that were selected on the fleet page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from dashboard.forms.cluster import LabelsField
from monitoring.models import Job

MOST = 500
SAVEPOINT, STOP, LABEL, UNLABEL = "savepoint", "stop", "label", "unlabel"
ACTIONS = (
    (SAVEPOINT, _("Savepoint now")),
    (STOP, _("Stop with a savepoint")),
    (LABEL, _("Add labels")),
    (UNLABEL, _("Remove labels")),
)
_NO_JOB = {
    "required": _("Select at least one job."),
    "invalid_choice": _("Job %(value)s does not exist or was removed."),
    "invalid_pk_value": _("“%(pk)s” is not a job ID."),
}


class BulkForm(forms.Form):
    """An action on several jobs.

    LABEL adds the `labels` to each job. UNLABEL removes those that a job has with the same value.
    """

    # The API has this name, too.
    deed = forms.ChoiceField(choices=ACTIONS, label=_("Action"))
    labels = LabelsField(required=False, max_length=1000, label=_("Labels"))
    confirmed = forms.BooleanField(required=False)

    def __init__(self, *args: Any, offered: QuerySet[Job], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["jobs"] = forms.ModelMultipleChoiceField(offered, label=_("Jobs"), error_messages=_NO_JOB)

    def clean_jobs(self) -> list[Job]:
        found = list(self.cleaned_data["jobs"])
        if len(found) > MOST:
            raise forms.ValidationError(
                _("You selected %(len)s jobs; at most %(MOST)s are allowed.") % {"MOST": MOST, "len": len(found)}
            )
        return sorted(found, key=lambda job: job.name)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("deed") in (LABEL, UNLABEL) and "labels" in cleaned and not cleaned["labels"]:
            self.add_error("labels", _("Enter at least one label, for example team=payments."))
        return cleaned
