"""Subtasks wait much longer for barriers than this job's usually do."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.relative import RelativeDuration


class AlignmentRelative(RelativeDuration):
    name = "alignment_relative"
    title = _("Alignment duration against the job's own p95")
    column = "alignment_max"
    phrase = "had a subtask that aligned for"
    figure = "longest alignment"


KIND = AlignmentRelative()
