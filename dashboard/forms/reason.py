"""Why something is switched off or removed: whoever finds it so wants to know."""

from __future__ import annotations

from django import forms


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        label="Why",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": "Say why, for whoever finds it so.", "max_length": "At most 500 characters."},
    )
