"""The form of an objective."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop as noop

from dashboard.forms.measures import field_of
from dashboard.forms.scoped import ScopedForm
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
_PERCENT = _("Enter a number from 50 to 99.99.")
_DAYS = _("Enter a whole number from 1 to 90.")


class ObjectiveForm(ScopedForm):
    """The form for `objective`. `apply` changes the objective, and the caller saves it."""

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
        super().offer_jobs(offered, only=only)
        self.order_fields(("scope", "selector", "job", "percent", "limit_ms", "days"))

    @property
    def job(self) -> Job | None:
        """Return the job of the objective, also that of a new objective whose form is valid."""
        chosen: Job | None = getattr(self, "cleaned_data", {}).get("found_job")
        return self.objective.job or chosen

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if (found := cleaned.get("found_job")) is not None and Objective.objects.filter(job=found).exists():
            self.add_error("job", _("The job already has an objective."))
        if "scope" in self.fields and not self.errors and not self.is_for_one_job:
            self._require_unused(cleaned)
        return cleaned

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
