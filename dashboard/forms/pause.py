"""A pause of the automation of all jobs, or of the jobs of one cluster."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from dashboard.forms.spans import SpanField
from monitoring.models import Cluster
from monitoring.pauses import LONGEST_REASON


class PauseForm(forms.Form):
    cluster = forms.ModelChoiceField(
        Cluster.objects.all(),
        required=False,
        label=_("Scope"),
        empty_label=_("everything"),
    )
    lasts = SpanField(
        least=60,
        most=90 * 86_400,
        required=False,
        label=_("Duration"),
        help_text=_("For example 2 h. Empty: until a person ends the pause."),
    )
    reason = forms.CharField(
        max_length=LONGEST_REASON,
        label=_("Reason"),
        help_text=_("Shown with the pause."),
        error_messages={"required": _("Enter the reason for the pause.")},
    )
