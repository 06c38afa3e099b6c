"""The form of an objective."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop as noop

from dashboard.forms.editing import EditForm
from dashboard.forms.measures import field_of
from dashboard.forms.named_job import HINT, MISSING, find_named_job
from monitoring.alerts import selector
from monitoring.alerts.kinds.base import Number, Unit
from monitoring.models import AuditEntry, Job, Objective, RuleScope

LEAST, MOST = 50, 99.99  # percent
LONGEST_DAYS = 90
_LIMIT = Number(
    noop("Time"),
    Unit.MILLISECONDS,
    30_000,
    1,
    30 * 86_400_000,
    noop("A checkpoint must complete in less than this time."),
)
_ONE_JOB = (RuleScope.JOB.value, _("One job"))
_SCOPES = ((RuleScope.EVERYTHING.value, _("All jobs")), (RuleScope.SELECTOR.value, _("Jobs by label")))
_PERCENT = _("Enter a number from 50 to 99.99.")
_DAYS = _("Enter a whole number from 1 to 90.")


class ObjectiveForm(EditForm, forms.Form):
    """The form for `objective`. `apply` changes the objective, and the caller saves it."""

    _offered_jobs: QuerySet[Job]
    scope = forms.ChoiceField(choices=_SCOPES, widget=forms.RadioSelect, label=_("Applies to"))
    selector = forms.CharField(
        max_length=500,
        required=False,
        label=_("Labels"),
        help_text=_("For example team=payments,env!=dev or job=orders-*"),
    )
    percent = forms.FloatField(
        min_value=LEAST,
        max_value=MOST,
        label=_("Share (%)"),
        help_text=_("The percentage of the checkpoints that must complete in time, such as 99."),
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), _PERCENT),
    )
    days = forms.IntegerField(
        min_value=1,
        max_value=LONGEST_DAYS,
        label=_("Days"),
        help_text=_("Today and the UTC days before it."),
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), _DAYS),
    )

    def __init__(self, objective: Objective, data: Mapping[str, Any] | None = None) -> None:
        self.objective = objective
        super().__init__(data, initial=_initial(objective), label_suffix="")
        self.fields["limit_ms"] = field_of(_LIMIT)
        self.order_fields(("scope", "selector", "job", "percent", "limit_ms", "days"))
        self.fields["percent"].widget.attrs["step"] = "any"
        if objective.job_id is not None:
            del self.fields["scope"], self.fields["selector"]

    def edited_row(self) -> Objective:
        return self.objective

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="objective.change", target=target_of(self.objective))

    def offer_jobs(self, offered: QuerySet[Job], *, only: bool = False) -> None:
        """Offer one of these jobs as the scope of a new objective. With `only`, offer no wider scope."""
        if self.objective.pk is not None or "scope" not in self.fields:
            return
        self._offered_jobs = offered
        self.fields["scope"].choices = [_ONE_JOB] if only else [*_SCOPES, _ONE_JOB]
        if only:
            self.initial["scope"] = RuleScope.JOB.value
        suggested = forms.TextInput(attrs={"list": "jobs", "autocomplete": "off"})
        self.fields["job"] = forms.CharField(
            required=False, max_length=600, label=_("Job"), widget=suggested, help_text=HINT
        )
        self.order_fields(("scope", "selector", "job", "percent", "limit_ms", "days"))

    @property
    def job(self) -> Job | None:
        """Return the job of the objective, also that of a new objective whose form is valid."""
        chosen: Job | None = getattr(self, "cleaned_data", {}).get("found_job")
        return self.objective.job or chosen

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

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "scope" not in self.fields or self.errors:
            return cleaned
        if cleaned["scope"] == RuleScope.JOB:
            self._find_job(cleaned)
        else:
            self._require_unused(cleaned)
        return cleaned

    def _find_job(self, cleaned: dict[str, Any]) -> None:
        try:
            if not cleaned["job"].strip():
                raise ValidationError(MISSING)
            found = find_named_job(self._offered_jobs, cleaned["job"])
            if Objective.objects.filter(job=found).exists():
                raise ValidationError(_("The job already has an objective."))
        except ValidationError as problem:
            self.add_error("job", problem)
        else:
            cleaned["found_job"] = found

    def _require_unused(self, cleaned: dict[str, Any]) -> None:
        same = Objective.objects.filter(job=None, selector=cleaned["selector"]).exclude(pk=self.objective.pk)
        if same.exists():
            field = "selector" if cleaned["selector"] else "scope"
            self.add_error(field, _("There is an objective for these jobs already."))

    def apply(self) -> Objective:
        """Set the values of the form on the objective without saving it."""
        cleaned, objective = self.cleaned_data, self.objective
        if "found_job" in cleaned:
            objective.job = cleaned["found_job"]
        for name in ("selector", "percent", "limit_ms", "days"):
            if name in cleaned:
                setattr(objective, name, cleaned[name])
        return objective


def new_objective(job: Job | None = None) -> Objective:
    """Return an objective that is not stored, with the default values of the form."""
    return Objective(job=job, percent=99, limit_ms=_LIMIT.default or 0)


def target_of(objective: Objective) -> str:
    """Return how the audit log names the objective."""
    return f"job {objective.job.name}" if objective.job else f"objective {objective.selector or 'all jobs'}"


def _initial(objective: Objective) -> dict[str, Any]:
    own = {name: getattr(objective, name) for name in ("selector", "limit_ms", "days")}
    scope = RuleScope.SELECTOR if objective.selector else RuleScope.EVERYTHING
    return own | {"percent": f"{objective.percent:g}", "scope": scope.value}
