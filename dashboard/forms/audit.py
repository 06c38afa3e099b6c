"""Filters of the audit log."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from dashboard.queries.audit import AuditFilter
from dashboard.time_zone import show_zone

_KINDS = (
    ("", _("everything")),
    ("automation.", _("pauses")),
    ("channel.", _("channels")),
    ("cluster.", _("clusters")),
    ("incident.", _("incidents")),
    ("job.", _("jobs")),
    ("maintenance.", _("maintenance")),
    ("restart.", _("restarts")),
    ("rule.", _("rules")),
    ("savepoint.", _("savepoints")),
    ("token.", _("tokens")),
    ("user.", _("users")),
)
_DAY = {"type": "date"}


class AuditForm(forms.Form):
    q = forms.CharField(
        required=False,
        max_length=200,
        label=_("User or object"),
        widget=forms.TextInput(attrs={"type": "search", "placeholder": _("User or object"), "autocomplete": "off"}),
    )
    action = forms.ChoiceField(choices=_KINDS, required=False, label=_("Category"))
    since = forms.DateField(required=False, label=_("From"), widget=forms.DateInput(attrs=_DAY, format="%Y-%m-%d"))
    until = forms.DateField(required=False, label=_("To"), widget=forms.DateInput(attrs=_DAY, format="%Y-%m-%d"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in ("since", "until"):
            show_zone(self.fields[name])

    def chosen(self) -> AuditFilter:
        """Return the valid filters. Days are in the reader's time zone, and the last day is included."""
        self.is_valid()
        typed = self.cleaned_data
        until = typed.get("until")
        return AuditFilter(
            text=typed.get("q", ""),
            action=typed.get("action", ""),
            since=_midnight(typed["since"]) if typed.get("since") else None,
            until=_midnight(until + timedelta(days=1)) if until and until < date.max else None,
        )


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))
