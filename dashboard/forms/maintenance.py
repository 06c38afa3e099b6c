"""A maintenance window: of what, for how long, and why."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from dashboard.forms.spans import SpanField
from monitoring.models import Cluster, Job, MaintenanceWindow

LONGEST_S = 30 * 86_400
_LABEL = re.compile(r"([A-Za-z0-9_.\-/]{1,100})\s*=\s*([^,=\s][^,=]{0,199})")
SCOPES = (("job", "One job"), ("cluster", "A cluster and its jobs"), ("labels", "Jobs by label"))


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
    labels = forms.CharField(
        required=False,
        max_length=1000,
        label="Labels",
        help_text="Such as team=payments, tier=1: jobs that have all of them.",
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

    def clean_labels(self) -> dict[str, str]:
        text = str(self.cleaned_data["labels"]).strip()
        labels: dict[str, str] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            written = _LABEL.fullmatch(part)
            if not written:
                raise ValidationError(f"{part!r} is no label; write key=value, several separated by commas.")
            if labels.get(written[1], written[2].strip()) != written[2].strip():
                raise ValidationError(f"{written[1]!r} stands there twice: no job has two values of one label.")
            labels[written[1]] = written[2].strip()
        return labels

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        scope = cleaned.get("scope")
        if scope in ("job", "cluster", "labels") and not cleaned.get(scope) and scope not in self.errors:
            what = {"job": "the job", "cluster": "the cluster", "labels": "at least one label"}[scope]
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
            labels=cleaned["labels"] if scope == "labels" else {},
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
