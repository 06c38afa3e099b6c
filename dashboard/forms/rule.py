"""The form of a rule: the parameters of its type, and the fields of all rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from dashboard.forms.choices import in_language
from dashboard.forms.measures import field_of
from dashboard.forms.runbook import RunbookField
from dashboard.forms.scoped import ScopedForm
from dashboard.forms.spans import SpanField
from monitoring.alerts.kinds.base import Kind, Subject, Terms
from monitoring.alerts.scope import terms_of
from monitoring.models import AlertRule, AuditEntry, Channel, Job, Severity

_DAY = 86_400


class RuleForm(ScopedForm):
    """The form for `rule`, whose type is fixed. `apply` changes the rule, and the caller saves it."""

    name = forms.CharField(max_length=100, label=_("Name"), help_text=_("Shown in lists."))
    open_hold_s = SpanField(
        least=0,
        most=_DAY,
        label=_("Open after"),
        help_text=_("The problem must last this long before an incident opens. 0 s: no delay."),
    )
    close_hold_s = SpanField(
        least=0,
        most=_DAY,
        label=_("Close after"),
        help_text=_("The problem must be gone this long before the incident is resolved. 0 s: no delay."),
    )
    flap_opens = forms.IntegerField(
        min_value=0,
        max_value=100,
        label=_("Flapping threshold"),
        help_text=_("This many openings within the flapping window become one flapping incident. 0: never."),
        error_messages={
            "min_value": _("At least 0. 0 means never."),
            "max_value": _("At most 100."),
            "invalid": _("Enter a whole number from 0 to 100."),
        },
    )
    flap_window_s = SpanField(
        least=600,
        most=7 * _DAY,
        label=_("Flapping window"),
        help_text=_("A flapping incident is resolved after this long without a problem."),
    )
    check_every_s = SpanField(
        least=5,
        most=_DAY,
        label=_("Check every"),
        help_text=_("For example 5 min. Each check covers the whole time since the previous one."),
    )
    severity = forms.ChoiceField(
        choices=in_language(Severity.choices),
        widget=forms.RadioSelect,
        label=_("Severity"),
        help_text=_("A job with a critical incident has the level failing in the fleet."),
    )
    channels = forms.ModelMultipleChoiceField(
        Channel.objects.all(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label=_("Notify"),
        help_text=_("If you select none, the rule notifies all channels."),
    )
    runbook = RunbookField(required=False, help_text=_("A URL, or what to do. Incidents and messages show it."))
    enabled = forms.BooleanField(
        required=False,
        label=_("Enabled"),
        help_text=_("While disabled, broader rules do not apply to these jobs either."),
    )

    def __init__(self, kind: Kind, rule: AlertRule, data: Mapping[str, Any] | None = None) -> None:
        self.kind, self.rule = kind, rule
        super().__init__(data, initial=_initial(rule, terms_of(rule)), label_suffix="")
        for name in self._superfluous():
            del self.fields[name]
        measures = {"threshold": kind.threshold, "window_s": kind.window, **kind.parameters}
        own = {name: field_of(measure) for name, measure in measures.items() if measure is not None}
        self.fields = {**own, **self.fields}
        self.order_fields((*own, "name"))
        self.own_names = list(own)

    def edited_row(self) -> AlertRule:
        return self.rule

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        job = self.rule.job
        entries = AuditEntry.objects.filter(action="rule.change")
        if job is None:
            return entries.filter(target=f"rule {self.rule.name}")
        return entries.filter(target=f"job {job.name}", details__has_any_keys=list(names))

    def offer_channels(self, offered: QuerySet[Channel]) -> None:
        """Offer only these channels, because an account that may not select channels must not see other names."""
        self.fields["channels"].queryset = offered  # type: ignore[attr-defined]

    def offer_jobs(self, offered: QuerySet[Job], *, only: bool = False) -> None:
        super().offer_jobs(offered, only=only)
        if self.is_for_one_job:
            self.fields["name"].required = False

    @property
    def watched_job(self) -> Job | None:
        """Return the job of the rule, also that of a new rule whose form is valid."""
        chosen: Job | None = getattr(self, "cleaned_data", {}).get("found_job")
        return self.rule.job or chosen

    def _superfluous(self) -> list[str]:
        if self.rule.job_id is not None or self.rule.job is not None:  # a new job has no ID yet
            return ["name", "scope", "selector"]
        return [] if self.kind.subject is Subject.JOB else ["scope", "selector"]

    @property
    def own_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.own_names]

    def clean_name(self) -> str:
        if self.is_for_one_job:
            return ""
        name: str = self.cleaned_data["name"].strip()
        if AlertRule.objects.filter(job=None, name=name).exclude(pk=self.rule.pk).exists():
            raise ValidationError(_("Another rule has this name. Choose a different name."))
        return name

    def clean_severity(self) -> str:
        severity: str = self.cleaned_data["severity"]
        if self.rule.job_id is not None:
            self._require_unused(self.rule.job_id, severity)
        return severity

    def _require_unused(self, job_id: int, severity: str) -> None:
        same = AlertRule.objects.filter(job=job_id, kind=self.kind.name, severity=severity)
        if same.exclude(pk=self.rule.pk).exists():
            raise ValidationError(_("The job already has a rule of this type and severity."))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        lead, keeps = cleaned.get("lead_s"), cleaned.get("threshold")
        if lead is not None and keeps is not None and lead >= keeps:
            self.add_error("lead_s", _("Enter less time than the source keeps data."))
        if (found := cleaned.get("found_job")) is not None and "severity" in cleaned:
            try:
                self._require_unused(found.pk, cleaned["severity"])
            except ValidationError as problem:
                self.add_error("severity", problem)
        return cleaned

    @property
    def terms(self) -> Terms:
        """Return the terms of the rule. The form must be valid."""
        cleaned = self.cleaned_data
        return self.kind.fill(cleaned.get("threshold"), cleaned.get("window_s"), self._parameters())

    def apply(self) -> AlertRule:
        """Set the values of the form, except channels, on the rule without saving it."""
        cleaned, rule = self.cleaned_data, self.rule
        if "found_job" in cleaned:
            rule.job = cleaned["found_job"]
        rule.threshold, rule.window_s = cleaned.get("threshold"), cleaned.get("window_s")
        rule.parameters = self._parameters()
        names = ["name", "selector", "open_hold_s", "close_hold_s", "flap_opens", "flap_window_s"]
        for name in [*names, "check_every_s", "severity", "runbook", "enabled"]:
            if name in cleaned:
                setattr(rule, name, cleaned[name])
        return rule

    def _parameters(self) -> dict[str, Any]:
        values = {name: self.cleaned_data.get(name) for name in self.kind.parameters}
        return {name: value.isoformat() if isinstance(value, date) else value for name, value in values.items()}


def _initial(rule: AlertRule, terms: Terms) -> dict[str, Any]:
    names = ("name", "selector", "open_hold_s", "close_hold_s", "flap_opens", "flap_window_s", "check_every_s")
    own = {name: getattr(rule, name) for name in (*names, "severity", "runbook", "enabled")}
    channels = list(rule.channels.all()) if rule.pk else []
    measured = {"threshold": terms.threshold, "window_s": terms.window_s, **terms.parameters}
    return own | measured | {"scope": rule.scope.value, "channels": channels}
