"""Holding the automation of everything or of a cluster."""

from __future__ import annotations

from django import forms

from dashboard.forms.spans import SpanField
from monitoring.models import Cluster
from monitoring.pauses import LONGEST_REASON


class PauseForm(forms.Form):
    cluster = forms.ModelChoiceField(Cluster.objects.all(), required=False, label="Of", empty_label="everything")
    lasts = SpanField(
        least=60, most=90 * 86_400, required=False, label="For", help_text="Such as 2 h. Empty: until somebody ends it."
    )
    reason = forms.CharField(
        max_length=LONGEST_REASON,
        label="Why",
        help_text="For whoever finds it paused.",
        error_messages={"required": "Say why, for whoever finds it paused."},
    )
