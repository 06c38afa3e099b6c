"""Subtasks wait too long for barriers: the longest alignment of a checkpoint."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Terms, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure


class Alignment(CheckpointFigure):
    name = "alignment"
    title = _("Alignment duration")
    column = "alignment_max"
    phrase = "had a subtask that aligned for"
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 10_000, 1, 30 * 86_400_000, _("Such as 500 ms or 10 s."))

    def explain(self, terms: Terms) -> str:
        limit = self.unit.text(terms.threshold or 0)
        return (
            f"Opens when a subtask of the last completed checkpoint waited {limit} or longer for its barriers to align."
        )


KIND = Alignment()
