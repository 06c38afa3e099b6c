"""The form for a maintenance window: its scope, its duration and its reason."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from dashboard.forms.named_job import HINT, MISSING, find_named_job
from dashboard.forms.selector import checked_selector
from dashboard.forms.spans import SpanField
from dashboard.time_zone import show_zone
from monitoring.models import Cluster, Job, MaintenanceWindow

LONGEST_S = 30 * 86_400
SCOPES = (("job", _("One job")), ("cluster", _("A cluster and its jobs")), ("selector", _("Jobs by label")))
_MISSING = {"job": MISSING, "cluster": _("Select a cluster."), "selector": _("Enter at least one label.")}


class MaintenanceForm(forms.Form):
    """A new window. `jobs` are those that the account may see; others do not exist, also in error messages."""

    scope = forms.ChoiceField(choices=SCOPES, initial="job", label=_("Scope"), widget=forms.RadioSelect)
    job = forms.CharField(
        required=False,
        max_length=600,
        label=_("Job"),
        widget=forms.TextInput(attrs={"list": "jobs", "autocomplete": "off"}),
        help_text=HINT,
    )
    cluster = forms.ModelChoiceField(Cluster.objects.all(), required=False, label=_("Cluster"), empty_label=_("select"))
    selector = forms.CharField(
        required=False,
        max_length=500,
        label=_("Labels"),
        help_text=_("For example team=payments,env!=dev. Jobs must match all terms."),
    )
    starts_at = forms.DateTimeField(
        required=False,
        label=_("From"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=_("Empty: the window starts now."),
        error_messages={"invalid": _("Enter a date and time, for example 2026-11-21 22:00.")},
    )
    lasts = SpanField(
        least=60,
        most=LONGEST_S,
        label=pgettext_lazy("of a maintenance window", "Duration"),
        initial=3600,
        error_messages={"required": _("Enter a duration, for example 2 h.")},
    )
    reason = forms.CharField(
        max_length=500,
        label=_("Reason"),
        help_text=_("Shown with the window and in the audit log."),
        error_messages={"required": _("Enter a reason. It is shown with the window.")},
    )

    def __init__(self, *args: Any, jobs: QuerySet[Job], **options: Any) -> None:
        super().__init__(*args, **options)
        show_zone(self.fields["starts_at"])
        self._jobs = jobs

    def clean_selector(self) -> str:
        return checked_selector(str(self.cleaned_data["selector"]))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        scope = cleaned.get("scope")
        if scope in ("job", "cluster", "selector") and not cleaned.get(scope) and scope not in self.errors:
            self.add_error(scope, _MISSING[scope])
        elif scope == "job" and scope not in self.errors:
            try:
                cleaned["found_job"] = find_named_job(self._jobs, str(cleaned["job"]))
            except ValidationError as problem:
                self.add_error("job", problem)
        return cleaned

    def clean_starts_at(self) -> datetime | None:
        at: datetime | None = self.cleaned_data["starts_at"]
        now = timezone.now()
        if at is not None and at < now - timedelta(minutes=5):
            raise ValidationError(_("This time is in the past. Leave the field empty to start the window now."))
        if at is not None and at > now + timedelta(days=366):
            raise ValidationError(_("This time is more than a year ahead."))
        return at

    def window(self, by: str, now: datetime) -> MaintenanceWindow:
        """Return the window from the validated fields, unsaved."""
        cleaned = self.cleaned_data
        scope, starts_at = cleaned["scope"], cleaned["starts_at"] or now
        return MaintenanceWindow(
            reason=cleaned["reason"],
            job=cleaned["found_job"] if scope == "job" else None,
            cluster=cleaned["cluster"] if scope == "cluster" else None,
            selector=cleaned["selector"] if scope == "selector" else "",
            starts_at=starts_at,
            ends_at=starts_at + timedelta(seconds=cleaned["lasts"]),
            created_by=by,
        )
