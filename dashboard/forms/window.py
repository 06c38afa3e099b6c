"""The time range and run of a page, stored in the query string, so that links and the back button keep them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from dashboard.time_zone import show_zone

MOST_RUNS = 2**31 - 1


class MomentField(forms.DateTimeField):
    """A date and a time. A value may have a time zone (`…T14:02:36Z`); otherwise the reader's time zone applies."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")
    default_error_messages = {"invalid": _("Enter a date and time, for example 2026-11-21 22:00.")}  # noqa: RUF012

    def prepare_value(self, value: Any) -> Any:
        """Return the value in the format of the browser's field, also for a value with a time zone."""
        at = _parsed(value) if isinstance(value, str) else value
        local = timezone.localtime(at) if isinstance(at, datetime) and timezone.is_aware(at) else at
        return local.strftime("%Y-%m-%dT%H:%M:%S") if isinstance(local, datetime) else value


def _parsed(text: str) -> datetime | None:
    try:
        return parse_datetime(text.strip())
    except ValueError:
        return None


class WindowForm(forms.Form):
    since = MomentField(required=False, label=_("From"))
    until = MomentField(required=False, label=_("To"))
    run = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_RUNS,
        label=_("Run"),
        widget=forms.NumberInput(attrs={"min": 1, "inputmode": "numeric"}),
        error_messages={
            "invalid": _("Enter a run number, for example 3."),
            "min_value": _("Run numbers start at 1."),
            "max_value": _("The run number is at most %(limit_value)s."),
        },
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **({"label_suffix": ""} | options))
        for name in ("since", "until"):
            show_zone(self.fields[name])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        since, until = cleaned.get("since"), cleaned.get("until")
        if since and until and since >= until:
            self.add_error("until", _("The end must be later than the start."))
        return cleaned
