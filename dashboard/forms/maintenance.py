"""A maintenance window: of what, for how long, and why."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from dashboard.forms.spans import SpanField
from monitoring.alerts.selector import BadSelector, parse
from monitoring.models import Cluster, Job, MaintenanceWindow

LONGEST_S = 30 * 86_400
SCOPES = (("job", "One job"), ("cluster", "A cluster and its jobs"), ("selector", "Jobs by label"))


class MaintenanceForm(forms.Form):
    scope = forms.ChoiceField(choices=SCOPES, initial="job", label="Of", widget=forms.RadioSelect)
    job = forms.CharField(
        required=False,
        max_length=600,
        label="Job",
        widget=forms.TextInput(attrs={"list": "jobs", "autocomplete": "off"}),
        help_text="Its name; with “cluster/” before it where several clusters have one.",
    )
    cluster = forms.ModelChoiceField(Cluster.objects.all(), required=False, label="Cluster", empty_label="choose")
    selector = forms.CharField(
        required=False,
        max_length=500,
        label="Labels",
        help_text="Such as team=payments,env!=dev: jobs that match all of it.",
    )
    starts_at = forms.DateTimeField(
        required=False,
        label="From",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Empty: from now on.",
        error_messages={"invalid": "Write a date and a time, such as 2026-11-21 22:00."},
    )
    lasts = SpanField(
        least=60,
        most=LONGEST_S,
        label="Lasts",
        initial=3600,
        error_messages={"required": "Write how long, such as 2 h."},
    )
    reason = forms.CharField(
        max_length=500,
        label="Why",
        help_text="For whoever wonders why nobody was told.",
        error_messages={"required": "Say why, for whoever wonders why nobody was told."},
    )

    def clean_selector(self) -> str:
        text = str(self.cleaned_data["selector"]).strip()
        try:
            parse(text)
        except BadSelector as problem:
            raise ValidationError(str(problem)) from problem
        return text

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        scope = cleaned.get("scope")
        if scope in ("job", "cluster", "selector") and not cleaned.get(scope) and scope not in self.errors:
            what = {"job": "the job", "cluster": "the cluster", "selector": "at least one label"}[scope]
            self.add_error(scope, f"Say {what} that is meant.")
        elif scope == "job":
            self._find_job(str(cleaned["job"]).strip())
        return cleaned

    def clean_starts_at(self) -> datetime | None:
        at: datetime | None = self.cleaned_data["starts_at"]
        now = timezone.now()
        if at is not None and at < now - timedelta(minutes=5):
            raise ValidationError("That is past: people were told already. Leave it empty to begin now.")
        if at is not None and at > now + timedelta(days=366):
            raise ValidationError("That is more than a year ahead.")
        return at

    def window(self, by: str, now: datetime) -> MaintenanceWindow:
        """Of the checked fields; not saved."""
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

    def _find_job(self, text: str) -> None:
        found = list(Job.objects.filter(name=text).select_related("cluster")[:2])
        if not found and "/" in text:
            cluster, _, name = text.partition("/")
            found = list(Job.objects.filter(name=name, cluster__name=cluster).select_related("cluster")[:2])
        if not found:
            self.add_error("job", f"No job is called {text!r}.")
        elif len(found) > 1:
            self.add_error("job", f"Several clusters have a job {text!r}: write {found[0].cluster.name}/{text}.")
        else:
            self.cleaned_data["found_job"] = found[0]
