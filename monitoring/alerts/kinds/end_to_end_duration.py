"""Checkpoints take too long, from trigger to the last acknowledgement."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure
from monitoring.reasons.reason import ReasonCode


class EndToEndDurationReason(ReasonCode):
    RULE = (
        "alerts.end-to-end-duration-rule",
        _("Opens when the last completed checkpoint took {threshold:milliseconds} or longer, end to end."),
    )
    FOUND = (
        "alerts.end-to-end-duration",
        _(
            "Checkpoint {checkpoint} of {subject} took, end to end, {value:milliseconds} (threshold "
            "{threshold:milliseconds})."
        ),
    )


class EndToEndDuration(CheckpointFigure):
    name = "end_to_end_duration"
    title = _("End to end duration")
    column = "end_to_end_duration"
    rule = EndToEndDurationReason.RULE
    found = EndToEndDurationReason.FOUND
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 60_000, 1, 30 * 86_400_000, _("Such as 60 s."))


KIND = EndToEndDuration()
