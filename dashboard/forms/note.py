"""Forms for notes and snoozes of incidents, and for the reason of an action."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from dashboard.forms.spans import SpanField

SHORTEST_S, LONGEST_S = 60, 30 * 86_400


class NoteForm(forms.Form):
    note = forms.CharField(required=False, max_length=2_000, label=_("Note"), widget=forms.TextInput)


class SnoozeForm(NoteForm):
    snooze_for = SpanField(
        least=SHORTEST_S,
        most=LONGEST_S,
        label=_("Snooze for"),
        initial=3600,
        error_messages={"required": _("Enter a duration, for example 2 h.")},
        help_text=_("Waymark sends no notifications until then."),
    )


class SeveralForm(NoteForm):
    """The form that acknowledges several incidents of a list together."""

    incident = forms.TypedMultipleChoiceField(coerce=int, label=_("Incidents"))

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        sent = self.data.getlist("incident") if hasattr(self.data, "getlist") else []
        # Accept any number here. The action ignores incidents that do not exist or are not open.
        numbers = [value for value in sent if value.isdecimal() and len(value) < 19][:1000]
        self.fields["incident"].choices = [(value, value) for value in numbers]  # type: ignore[attr-defined]


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        label=_("Reason"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": _("Enter a reason."), "max_length": _("Enter at most 500 characters.")},
    )
