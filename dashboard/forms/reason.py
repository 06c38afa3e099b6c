"""Why something is switched off or removed: whoever finds it so wants to know."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        label=_("Why"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": _("Say why, for whoever finds it so."), "max_length": _("At most 500 characters.")},
    )
