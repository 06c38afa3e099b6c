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
from dashboard.forms.editing import EditForm
from dashboard.forms.measures import field_of
from dashboard.forms.named_job import HINT, MISSING, find_named_job
from dashboard.forms.runbook import RunbookField
from dashboard.forms.spans import SpanField
from monitoring.alerts import selector
from monitoring.alerts.kinds.base import Kind, Subject, Terms
from monitoring.alerts.scope import terms_of
from monitoring.models import AlertRule, AuditEntry, Channel, Job, RuleScope, Severity

_DAY = 86_400
_ONE_JOB = (RuleScope.JOB.value, _("One job"))
_SCOPES = ((RuleScope.EVERYTHING.value, _("All jobs")), (RuleScope.SELECTOR.value, _("Jobs by label")))


class RuleForm(EditForm, forms.Form):
    """The form for `rule`, whose type is fixed. `apply` changes the rule, and the caller saves it."""

    _offered_jobs: QuerySet[Job]
    name = forms.CharField(max_length=100, label=_("Name"), help_text=_("Shown in lists."))
    scope = forms.ChoiceField(choices=_SCOPES, widget=forms.RadioSelect, label=_("Applies to"))
    selector = forms.CharField(
        max_length=500,
        required=False,
        label=_("Labels"),
        help_text=_("For example team=payments,env!=dev or job=orders-*"),
    )
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
        """Offer one of these jobs as the scope of a new rule. With `only`, offer no wider scope."""
        if self.rule.pk is not None or "scope" not in self.fields:
            return
        self._offered_jobs = offered
        self.fields["scope"].choices = [_ONE_JOB] if only else [*_SCOPES, _ONE_JOB]
        if only:
            self.initial["scope"] = RuleScope.JOB.value
        suggested = forms.TextInput(attrs={"list": "jobs", "autocomplete": "off"})
        self.fields["job"] = forms.CharField(
            required=False, max_length=600, label=_("Job"), widget=suggested, help_text=HINT
        )
        if self._is_for_one_job:
            self.fields["name"].required = False

    @property
    def watched_job(self) -> Job | None:
        """Return the job of the rule, also that of a new rule whose form is valid."""
        chosen: Job | None = getattr(self, "cleaned_data", {}).get("found_job")
        return self.rule.job or chosen

    @property
    def _is_for_one_job(self) -> bool:
        return "job" in self.fields and self.data.get("scope") == RuleScope.JOB

    def _superfluous(self) -> list[str]:
        if self.rule.job_id is not None or self.rule.job is not None:  # a new job has no ID yet
            return ["name", "scope", "selector"]
        return [] if self.kind.subject is Subject.JOB else ["scope", "selector"]

    @property
    def own_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.own_names]

    def clean_selector(self) -> str:
        text: str = self.cleaned_data["selector"].strip()
        if self.data.get("scope") != RuleScope.SELECTOR:
            return ""
        if not text:
            raise ValidationError(_("Enter %(ALLOWED)s.") % {"ALLOWED": selector.ALLOWED})
        try:
            selector.parse(text)
        except selector.BadSelector as bad:
            raise ValidationError(str(bad)) from None
        return text

    def clean_name(self) -> str:
        if self._is_for_one_job:
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
        cleaned = super().clean() or self.cleaned_data
        lead, keeps = cleaned.get("lead_s"), cleaned.get("threshold")
        if lead is not None and keeps is not None and lead >= keeps:
            self.add_error("lead_s", _("Enter less time than the source keeps data."))
        if self._is_for_one_job and "job" not in self.errors:
            self._find_job(cleaned)
        return cleaned

    def _find_job(self, cleaned: dict[str, Any]) -> None:
        field = "job"
        try:
            if not cleaned["job"].strip():
                raise ValidationError(MISSING)
            cleaned["found_job"] = found = find_named_job(self._offered_jobs, cleaned["job"])
            field = "severity"
            if "severity" in cleaned:
                self._require_unused(found.pk, cleaned["severity"])
        except ValidationError as problem:
            self.add_error(field, problem)

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
