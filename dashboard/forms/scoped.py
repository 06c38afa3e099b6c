"""The form of something that applies to all jobs, to the jobs with some labels, or to one job."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from dashboard.forms.editing import EditForm
from dashboard.forms.named_job import HINT, MISSING, find_named_job
from dashboard.forms.selector import checked_selector
from monitoring.alerts.selector import ALLOWED
from monitoring.models import Job, RuleScope

_ONE_JOB = (RuleScope.JOB.value, _("One job"))
_SCOPES = ((RuleScope.EVERYTHING.value, _("All jobs")), (RuleScope.SELECTOR.value, _("Jobs by label")))


class ScopedForm(EditForm, forms.Form):
    """A form with the fields `scope` and `selector`, and for a new row also `job` (see `offer_jobs`).

    After validation for one job, `found_job` in `cleaned_data` is that job.
    """

    _offered_jobs: QuerySet[Job]
    scope = forms.ChoiceField(choices=_SCOPES, widget=forms.RadioSelect, label=_("Applies to"))
    selector = forms.CharField(
        max_length=500,
        required=False,
        label=_("Labels"),
        help_text=_("For example team=payments,env!=dev or job=orders-*"),
    )

    def offer_jobs(self, offered: QuerySet[Job], *, only: bool = False) -> None:
        """Offer one of these jobs as the scope of a new row. With `only`, offer no wider scope."""
        if self.edited_row().pk is not None or "scope" not in self.fields:
            return
        self._offered_jobs = offered
        self.fields["scope"].choices = [_ONE_JOB] if only else [*_SCOPES, _ONE_JOB]  # type: ignore[attr-defined]
        if only:
            self.initial["scope"] = RuleScope.JOB.value
        suggested = forms.TextInput(attrs={"list": "jobs", "autocomplete": "off"})
        self.fields["job"] = forms.CharField(
            required=False, max_length=600, label=_("Job"), widget=suggested, help_text=HINT
        )

    @property
    def is_for_one_job(self) -> bool:
        return "job" in self.fields and self.data.get("scope") == RuleScope.JOB

    def clean_selector(self) -> str:
        text: str = self.cleaned_data["selector"].strip()
        if self.data.get("scope") != RuleScope.SELECTOR:
            return ""
        if not text:
            raise ValidationError(_("Enter %(ALLOWED)s.") % {"ALLOWED": ALLOWED})
        return checked_selector(text)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.is_for_one_job and "job" not in self.errors:
            try:
                if not cleaned["job"].strip():
                    raise ValidationError(MISSING)
                cleaned["found_job"] = find_named_job(self._offered_jobs, cleaned["job"])
            except ValidationError as problem:
                self.add_error("job", problem)
        return cleaned
