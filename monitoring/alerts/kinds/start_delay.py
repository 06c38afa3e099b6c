"""Barriers arrive too late: the longest start delay of a checkpoint."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure
from monitoring.reasons.reason import ReasonCode


class StartDelayReason(ReasonCode):
    RULE = (
        "alerts.start-delay-rule",
        _(
            "Opens when the first barrier of the last completed checkpoint took {threshold:milliseconds} or longer "
            "to reach a subtask."
        ),
    )
    FOUND = (
        "alerts.start-delay",
        _(
            "Checkpoint {checkpoint} of {subject} had a subtask that its first barrier reached after "
            "{value:milliseconds} (threshold {threshold:milliseconds})."
        ),
    )


class StartDelay(CheckpointFigure):
    name = "start_delay"
    title = _("Start delay")
    column = "start_delay_max"
    rule = StartDelayReason.RULE
    found = StartDelayReason.FOUND
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 30_000, 1, 30 * 86_400_000, _("Such as 500 ms or 30 s."))


KIND = StartDelay()
