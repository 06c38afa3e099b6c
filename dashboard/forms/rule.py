"""The alert rule of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms

from dashboard.forms.spans import SpanField
from monitoring.models import AlertRule

if TYPE_CHECKING:
    RuleModelForm = forms.ModelForm[AlertRule]
else:
    RuleModelForm = forms.ModelForm


class RuleForm(RuleModelForm):
    threshold = forms.IntegerField(
        min_value=1,
        max_value=100_000,
        label="Threshold",
        help_text="Failed checkpoints that open an incident.",
        error_messages={
            "invalid": "Write a whole number, from 1 to 100000.",
            "min_value": "At least 1: no incident can open on fewer.",
            "max_value": "At most 100000.",
        },
    )
    window_s = SpanField(
        least=60, most=30 * 86_400, label="Window", help_text="How far back failures count, such as 15 min."
    )
    check_every_s = SpanField(
        least=5, most=86_400, label="Check every", help_text="How often the rule is looked at, such as 5 min."
    )

    class Meta:
        model = AlertRule
        fields = ("threshold", "window_s", "check_every_s", "severity", "channels", "enabled")
        widgets: ClassVar[dict[str, Any]] = {"channels": forms.CheckboxSelectMultiple, "severity": forms.RadioSelect}
        labels: ClassVar[dict[str, str]] = {"channels": "Notify", "enabled": "Enabled"}
        help_texts: ClassVar[dict[str, str]] = {"severity": "Critical makes the job count as failing in the fleet."}
