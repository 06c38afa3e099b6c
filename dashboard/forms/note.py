"""Forms for notes and snoozes of incidents, and for the reason of an action."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from dashboard.forms.spans import SpanField

SHORTEST_S, LONGEST_S = 60, 30 * 86_400
MORNING = time(9)


class NoteForm(forms.Form):
    note = forms.CharField(required=False, max_length=2_000, label=_("Note"), widget=forms.TextInput)


class WrittenNoteForm(NoteForm):
    """The form of a note that is the action itself."""

    note = forms.CharField(
        max_length=2_000, label=_("Note"), widget=forms.TextInput, error_messages={"required": _("Enter a note.")}
    )


class SnoozeForm(NoteForm):
    snooze_for = SpanField(
        least=SHORTEST_S,
        most=LONGEST_S,
        label=_("Snooze for"),
        initial=3600,
        widget=forms.TextInput(attrs={"data-keep": True}),
        error_messages={"required": _("Enter a duration, for example 2 h.")},
        help_text=_("Waymark sends no notifications until then."),
    )

    def until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=int(self.cleaned_data["snooze_for"]))


class PresetForm(NoteForm):
    """The form of a button that snoozes for a usual time."""

    preset = forms.ChoiceField(
        choices=[("30m", _("30 min")), ("2h", _("2 h")), ("tomorrow", _("Until tomorrow, 09:00"))],
        label=_("Snooze for"),
        error_messages={"required": _("Select how long to snooze.")},
    )

    def until(self, now: datetime) -> datetime:
        """Return the end of the snooze. Tomorrow is a day in the reader's time zone, which is the current one."""
        match self.cleaned_data["preset"]:
            case "30m":
                return now + timedelta(minutes=30)
            case "2h":
                return now + timedelta(hours=2)
            case _:
                day = timezone.localtime(now).date() + timedelta(days=1)
                return datetime.combine(day, MORNING, timezone.get_current_timezone())


class SeveralForm(NoteForm):
    """The form that acknowledges or resolves several incidents of a list together."""

    incident = forms.TypedMultipleChoiceField(coerce=int, label=_("Incidents"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        sent = self.data.getlist("incident") if hasattr(self.data, "getlist") else []
        # Accept any number here. The action ignores incidents that do not exist or are not open.
        numbers = [value for value in sent if value.isdecimal() and len(value) < 19][:1000]
        self.fields["incident"].choices = [(value, value) for value in numbers]  # type: ignore[attr-defined]


class SnoozeSeveralForm(SeveralForm, PresetForm):
    """The form that snoozes several incidents of a list together."""


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        label=_("Reason"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": _("Enter a reason."), "max_length": _("Enter at most 500 characters.")},
    )
