"""The filters of the checkpoint history."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from dashboard.forms.measures import MeasureField
from dashboard.forms.window import WindowForm
from dashboard.queries.history import KINDS, HistoryFilter
from monitoring.alerts.kinds.base import Number, Unit
from monitoring.models import CheckpointStatus

_DURATION = Number("Min. duration", Unit.MILLISECONDS, default=None, least=0, most=30 * 86_400_000)
_ALIGNMENT = Number("Min. alignment", Unit.MILLISECONDS, default=None, least=0, most=30 * 86_400_000)
_SIZE = Number("Min. full size", Unit.BYTES, default=None, least=0, most=2**60)
TYPES = [("", _("any type")), *((kind, _(label)) for kind, label in KINDS.items())]


class HistoryForm(WindowForm):
    """Filters of checkpoints. An invalid field has an error and no effect. An unknown status is ignored."""

    status = forms.CharField(required=False, widget=forms.HiddenInput)
    kind = forms.ChoiceField(
        required=False,
        label=_("Type"),
        choices=TYPES,
    )
    took = MeasureField(_DURATION, required=False, label=_("Min. duration"))
    alignment = MeasureField(_ALIGNMENT, required=False, label=_("Min. alignment"))
    size = MeasureField(_SIZE, required=False, label=_("Min. full size"))

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.fields["took"].widget.attrs["placeholder"] = "2 s"
        self.fields["alignment"].widget.attrs["placeholder"] = "500 ms"
        self.fields["size"].widget.attrs["placeholder"] = "500 MB"

    @property
    def chosen(self) -> HistoryFilter:
        """Return the filter. Call `is_valid` first."""
        found = self.cleaned_data
        status = found.get("status", "")
        return HistoryFilter(
            status=status if status in CheckpointStatus.values else "",
            kind=found.get("kind", ""),
            run=found.get("run"),
            since=found.get("since"),
            until=found.get("until"),
            least_duration=found.get("took"),
            least_alignment=found.get("alignment"),
            least_size=found.get("size"),
        )
