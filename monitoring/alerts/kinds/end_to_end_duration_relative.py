"""Checkpoints take much longer than this job's usually do."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.relative import RelativeDuration
from monitoring.reasons.reason import ReasonCode


class EndToEndDurationRelativeReason(ReasonCode):
    FIGURE = "alerts.end-to-end-duration-figure", _("end to end duration")
    MEASURED = "alerts.end-to-end-duration-measured", _("took, end to end, {value:milliseconds}")


class EndToEndDurationRelative(RelativeDuration):
    name = "end_to_end_duration_relative"
    title = _("End to end duration against the job's own p95")
    column = "end_to_end_duration"
    figure = EndToEndDurationRelativeReason.FIGURE
    measured = EndToEndDurationRelativeReason.MEASURED


KIND = EndToEndDurationRelative()
