"""The form of a runbook for jobs by label, and the field that rules have too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from dashboard.forms.editing import EditForm
from dashboard.forms.selector import checked_selector
from monitoring.models import AuditEntry, Runbook


class RunbookField(forms.CharField):
    """A field for a URL or a text of several lines."""

    def __init__(self, **options: Any) -> None:
        area = forms.Textarea(attrs={"rows": 2, "autocomplete": "off"})
        super().__init__(max_length=1000, label=_("Runbook"), widget=area, **options)

    def clean(self, value: Any) -> str:
        return "\n".join(str(super().clean(value)).splitlines())


class RunbookForm(EditForm, forms.Form):
    """The form of `runbook`, which may be new. `apply` changes it, and the caller saves it."""

    selector = forms.CharField(
        max_length=500,
        label=_("Labels"),
        help_text=_("For example team=payments,env!=dev. Jobs must match all terms."),
        error_messages={"required": _("Enter at least one label.")},
    )
    text = RunbookField(
        help_text=_("A URL, or what to do at an incident of these jobs."),
        error_messages={"required": _("Enter a URL or a text.")},
    )

    def __init__(self, runbook: Runbook, data: Mapping[str, Any] | None = None) -> None:
        self.runbook = runbook
        super().__init__(data, initial={"selector": runbook.selector, "text": runbook.text}, label_suffix="")

    def edited_row(self) -> Runbook:
        return self.runbook

    def audit_entries(self, names: Collection[str]) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(action="runbook.change", target=f"runbook {self.runbook}")

    def clean_selector(self) -> str:
        text = checked_selector(str(self.cleaned_data["selector"]))
        if Runbook.objects.filter(selector=text).exclude(pk=self.runbook.pk).exists():
            raise ValidationError(_("There is a runbook for these labels already. Change that one."))
        return text

    def apply(self) -> Runbook:
        self.runbook.selector, self.runbook.text = self.cleaned_data["selector"], self.cleaned_data["text"]
        return self.runbook
