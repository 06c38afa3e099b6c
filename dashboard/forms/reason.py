"""The reason for disabling or removing something."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        label=_("Reason"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": _("Enter a reason."), "max_length": _("Enter at most 500 characters.")},
    )
