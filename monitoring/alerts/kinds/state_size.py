"""The state is too large."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Terms, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure

_GB = 1024**3


class StateSize(CheckpointFigure):
    name = "state_size"
    title = _("State size")
    group = _("State")
    unit = Unit.BYTES
    column = "state_size"
    phrase = "holds a state of"
    threshold = Number(_("Threshold"), Unit.BYTES, 10 * _GB, 1, 1024**6, _("Such as 500 MB or 10 GB, of 1024 each."))

    def explain(self, terms: Terms) -> str:
        limit = self.unit.text(terms.threshold or 0)
        return f"Opens when the state of the last completed checkpoint is {limit} or larger."


KIND = StateSize()
