"""Subtasks wait much longer for barriers than this job's usually do."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.relative import RelativeDuration
from monitoring.reasons.reason import ReasonCode


class AlignmentRelativeReason(ReasonCode):
    FIGURE = "alerts.alignment-figure", _("longest alignment")
    MEASURED = "alerts.alignment-measured", _("had a subtask that aligned for {value:milliseconds}")


class AlignmentRelative(RelativeDuration):
    name = "alignment_relative"
    title = _("Alignment duration against the job's own p95")
    column = "alignment_max"
    figure = AlignmentRelativeReason.FIGURE
    measured = AlignmentRelativeReason.MEASURED


KIND = AlignmentRelative()
