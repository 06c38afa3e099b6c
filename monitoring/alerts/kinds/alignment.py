"""Subtasks wait too long for barriers: the longest alignment of a checkpoint."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure
from monitoring.reasons.reason import ReasonCode


class AlignmentReason(ReasonCode):
    RULE = (
        "alerts.alignment-rule",
        _(
            "Opens when a subtask of the last completed checkpoint waited {threshold:milliseconds} or longer for its "
            "barriers to align."
        ),
    )
    FOUND = (
        "alerts.alignment",
        _(
            "Checkpoint {checkpoint} of {subject} had a subtask that aligned for {value:milliseconds} (threshold "
            "{threshold:milliseconds})."
        ),
    )


class Alignment(CheckpointFigure):
    name = "alignment"
    title = _("Alignment duration")
    column = "alignment_max"
    rule = AlignmentReason.RULE
    found = AlignmentReason.FOUND
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 10_000, 1, 30 * 86_400_000, _("Such as 500 ms or 10 s."))


KIND = Alignment()
