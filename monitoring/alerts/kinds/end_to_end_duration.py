"""Checkpoints take too long, from trigger to the last acknowledgement."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Terms, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure


class EndToEndDuration(CheckpointFigure):
    name = "end_to_end_duration"
    title = _("End to end duration")
    column = "end_to_end_duration"
    phrase = "took, end to end,"
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 60_000, 1, 30 * 86_400_000, _("Such as 60 s."))

    def explain(self, terms: Terms) -> str:
        limit = self.unit.text(terms.threshold or 0)
        return f"Opens when the last completed checkpoint took {limit} or longer, end to end."


KIND = EndToEndDuration()
