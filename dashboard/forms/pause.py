"""Holding the automation of everything or of a cluster."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from dashboard.forms.spans import SpanField
from monitoring.models import Cluster
from monitoring.pauses import LONGEST_REASON


class PauseForm(forms.Form):
    cluster = forms.ModelChoiceField(
        Cluster.objects.all(),
        required=False,
        label=pgettext_lazy("what a pause holds", "Of"),
        empty_label=_("everything"),
    )
    lasts = SpanField(
        least=60,
        most=90 * 86_400,
        required=False,
        label=pgettext_lazy("how long a pause lasts", "For"),
        help_text=_("Such as 2 h. Empty: until somebody ends it."),
    )
    reason = forms.CharField(
        max_length=LONGEST_REASON,
        label=_("Why"),
        help_text=_("For whoever finds it paused."),
        error_messages={"required": _("Say why, for whoever finds it paused.")},
    )
