"""Checkpoints take much longer than this job's usually do."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.relative import RelativeDuration


class EndToEndDurationRelative(RelativeDuration):
    name = "end_to_end_duration_relative"
    title = _("End to end duration against the job's own p95")
    column = "end_to_end_duration"
    phrase = "took, end to end,"
    figure = "end to end duration"


KIND = EndToEndDurationRelative()
