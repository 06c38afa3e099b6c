"""The forms for a job's automation, and for pauses of the automation."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.template.defaultfilters import capfirst
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from dashboard.forms.choices import in_language
from dashboard.forms.cluster import LabelsField
from dashboard.forms.editing import EditForm
from dashboard.forms.spans import SpanField
from dashboard.language import rendered
from monitoring.models import AuditEntry, Cluster, Job
from monitoring.pauses import LONGEST_REASON
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.timetable import LONGEST_S, SHORTEST_S, BadSchedule, Cron, Every, Quiet, Quieted, Timetable
from monitoring.units import ENGLISH, span_text

if TYPE_CHECKING:
    JobModelForm = forms.ModelForm[Job]
else:
    JobModelForm = forms.ModelForm


def _code_field(**more: Any) -> forms.CharField:
    """Return an optional field for codes, without correction and completion by the browser."""
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    return forms.CharField(required=False, widget=widget, **more)


class AutomationForm(EditForm, JobModelForm):
    """The automation of a job. `timetable` is the schedule of savepoints, `run_timetable` that of runs, or None."""

    timetable: Timetable | None = None
    run_timetable: Cron | None = None
    savepoint_schedule = _code_field(
        max_length=100,
        label=_("Savepoint schedule"),
        help_text=_("An interval, for example 1 h, or a cron expression, for example 0 3 * * *. Empty: no schedule."),
    )
    savepoint_time_zone = _code_field(
        max_length=64,
        label=_("Time zone of the schedule"),
        help_text=_("For example Europe/Berlin. Applies to cron expressions and hours."),
    )
    savepoint_quiet = _code_field(
        max_length=20,
        label=_("No savepoints between"),
        help_text=_("Hours without scheduled savepoints, for example 22:00-06:00. Empty: none."),
    )
    run_schedule = _code_field(
        max_length=100,
        label=_("Run schedule"),
        help_text=_("A cron expression, for example 0 3 * * *. Empty: manual runs only."),
    )
    run_time_zone = _code_field(
        max_length=64,
        label=_("Time zone of the schedule"),
        help_text=_("For example Europe/Berlin."),
    )
    max_restarts_per_hour = forms.IntegerField(
        min_value=1,
        max_value=60,
        label=_("Max. restarts per hour"),
        help_text=_("Above this limit, the breaker opens until a person closes it."),
        error_messages={
            "invalid": _("Enter a whole number from 1 to 60."),
            "min_value": _("Enter at least 1. For manual restarts only, clear “Restart automatically”."),
            "max_value": _("At most 60."),
        },
    )

    labels = LabelsField(
        required=False,
        max_length=1000,
        label=_("Labels"),
        help_text=_("For example team=payments, env=prod. Rules and maintenance windows select jobs by labels."),
    )
    max_restarts_per_day = forms.IntegerField(
        min_value=1,
        max_value=1000,
        label=_("Max. restarts per day"),
        help_text=_("Above this limit, the breaker opens until a person closes it."),
        error_messages={
            "invalid": _("Enter a whole number from 1 to 1000."),
            "min_value": _("Enter at least 1. For manual restarts only, clear “Restart automatically”."),
            "max_value": _("At most 1000."),
        },
    )
    oldest_state_s = SpanField(
        least=60,
        most=365 * 86_400,
        required=False,
        label=_("Oldest snapshot to restart from"),
        help_text=_("For example 6 h before the failure. Empty: any age. An older snapshot reprocesses more data."),
    )

    pause_lasts = SpanField(
        least=60,
        most=90 * 86_400,
        required=False,
        label=_("Duration of the pause"),
        help_text=_("For example 2 h from now. Empty: until a person ends the pause."),
    )

    class Meta:
        model = Job
        fields = (
            "auto_restart",
            "restore_from",
            "max_restarts_per_hour",
            "max_restarts_per_day",
            "oldest_state_s",
            "restart_on_lost",
            "allow_empty_start",
            "managed_elsewhere",
            "automation_paused",
            "automation_note",
            "labels",
        )
        help_texts: ClassVar[dict[str, Any]] = {
            "managed_elsewhere": _("For example the Flink Kubernetes operator. Waymark then only monitors the job.")
        }
        widgets: ClassVar[dict[str, Any]] = {"restore_from": forms.RadioSelect, "automation_note": forms.TextInput}
        labels: ClassVar[dict[str, Any]] = {
            "auto_restart": _("Restart automatically when the job fails"),
            "restore_from": _("Restart from"),
            "restart_on_lost": _("Restart also when the cluster no longer knows the job (LOST)"),
            "allow_empty_start": _("Start without state when no snapshot can be restored (the old state is lost)"),
            "managed_elsewhere": _("Managed elsewhere by"),
            "automation_paused": _("Pause the automation of this job"),
            "automation_note": _("Reason for the pause"),
        }

    def __init__(self, *args: Any, instance: Job, **options: Any) -> None:
        every = instance.savepoint_interval_s
        written = {
            "savepoint_schedule": instance.savepoint_cron if every is None else span_text(every, ENGLISH),
            "savepoint_time_zone": instance.savepoint_time_zone,
            "savepoint_quiet": instance.savepoint_quiet,
            "run_schedule": instance.run_cron,
            "run_time_zone": instance.run_time_zone,
            "pause_lasts": _minutes_left(instance),
        }
        super().__init__(*args, **options | {"instance": instance, "initial": written})
        restore = self.fields["restore_from"]
        restore.choices = in_language(restore.choices)  # type: ignore[attr-defined]

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="job.automation", target=f"job {self.instance.name}")

    def stored_values(self) -> dict[str, object]:
        # The field shows the time that is left of the pause, which shrinks without an edit.
        return super().stored_values() | {"pause_lasts": self.instance.automation_paused_until}

    @property
    def schedule_changed(self) -> bool:
        return bool({"savepoint_schedule", "savepoint_time_zone", "savepoint_quiet"} & set(self.changed_data))

    @property
    def run_schedule_changed(self) -> bool:
        return bool({"run_schedule", "run_time_zone"} & set(self.changed_data))

    def clean_run_schedule(self) -> str:
        return " ".join(self.cleaned_data["run_schedule"].split())

    def clean_run_time_zone(self) -> str:
        return self.cleaned_data["run_time_zone"] or "UTC"

    def clean_savepoint_schedule(self) -> str:
        return " ".join(self.cleaned_data["savepoint_schedule"].split())

    def clean_savepoint_time_zone(self) -> str:
        return self.cleaned_data["savepoint_time_zone"] or "UTC"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        zone, quiet = cleaned.get("savepoint_time_zone", "UTC"), cleaned.get("savepoint_quiet", "")
        try:
            self.timetable = _timetable(cleaned.get("savepoint_schedule", ""), zone, quiet)
        except BadSchedule as problem:
            at = problem.field if problem.field in self.fields else "savepoint_schedule"
            self.add_error(at, allowed_text(problem))
        except forms.ValidationError as problem:
            self.add_error("savepoint_schedule", problem)
        try:
            runs_at = cleaned.get("run_schedule", "")
            self.run_timetable = Cron(runs_at, cleaned.get("run_time_zone", "UTC")) if runs_at else None
        except BadSchedule as problem:
            at = "run_time_zone" if problem.field == "savepoint_time_zone" else "run_schedule"
            self.add_error(at, allowed_text(problem))
        if quiet and self.timetable is None and "savepoint_schedule" not in self.errors:
            self.add_error("savepoint_quiet", _("Enter a savepoint schedule, too."))
        if cleaned.get("automation_paused") and not (cleaned.get("automation_note") or "").strip():
            self.add_error("automation_note", _("Enter the reason for the pause."))
        self.instance.automation_paused_until = self._pause_end(cleaned)
        return cleaned

    def _pause_end(self, cleaned: dict[str, Any]) -> datetime | None:
        if not cleaned.get("automation_paused"):
            return None
        if not {"automation_paused", "pause_lasts"} & set(self.changed_data):
            return self.instance.automation_paused_until
        lasts = cleaned.get("pause_lasts")
        return None if lasts is None else timezone.now() + timedelta(seconds=lasts)


def allowed_text(problem: BadSchedule) -> str:
    """Return what is allowed instead, as a sentence in the language of the page."""
    return capfirst(rendered(SavepointReason.SENTENCE(clause=problem.reason)))


def _minutes_left(job: Job) -> int | None:
    """Return the rest of the job's pause in seconds, rounded to minutes."""
    if job.automation_paused_until is None:
        return None
    left = job.automation_paused_until - timezone.now()
    return max(1, round(left / timedelta(minutes=1))) * 60


def _timetable(text: str, zone: str, quiet: str) -> Timetable | None:
    """Parse an interval or a cron expression, and quiet hours. Raises BadSchedule or ValidationError."""
    if not text:
        return None
    # An interval such as "1 h" has two parts, a cron expression five.
    is_cron = len(text.split()) >= 3
    inner = Cron(text, zone) if is_cron else Every(SpanField(least=SHORTEST_S, most=LONGEST_S).clean(text))
    return Quieted(inner, Quiet.parse(quiet, zone)) if quiet else inner


class PauseForm(forms.Form):
    """A pause of the automation of all jobs, or of the jobs of one cluster."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.all(),
        required=False,
        label=_("Scope"),
        empty_label=_("everything"),
    )
    lasts = SpanField(
        least=60,
        most=90 * 86_400,
        required=False,
        label=_("Duration of the pause"),
        help_text=_("For example 2 h. Empty: until a person ends the pause."),
    )
    reason = forms.CharField(
        max_length=LONGEST_REASON,
        label=_("Reason"),
        help_text=_("Shown with the pause."),
        error_messages={"required": _("Enter the reason for the pause.")},
    )
