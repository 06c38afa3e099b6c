"""Barriers arrive too late: the longest start delay of a checkpoint."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Terms, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure


class StartDelay(CheckpointFigure):
    name = "start_delay"
    title = _("Start delay")
    column = "start_delay_max"
    phrase = "had a subtask that its first barrier reached after"
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 30_000, 1, 30 * 86_400_000, _("Such as 500 ms or 30 s."))

    def explain(self, terms: Terms) -> str:
        limit = self.unit.text(terms.threshold or 0)
        return (
            f"Opens when the first barrier of the last completed checkpoint took {limit} or longer to reach a subtask."
        )


KIND = StartDelay()
