"""Barriers arrive much later than this job's usually do."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.relative import RelativeDuration
from monitoring.reasons.reason import ReasonCode


class StartDelayRelativeReason(ReasonCode):
    FIGURE = "alerts.start-delay-figure", _("longest start delay")
    MEASURED = (
        "alerts.start-delay-measured",
        _("had a subtask that its first barrier reached after {value:milliseconds}"),
    )


class StartDelayRelative(RelativeDuration):
    name = "start_delay_relative"
    title = _("Start delay against the job's own p95")
    column = "start_delay_max"
    figure = StartDelayRelativeReason.FIGURE
    measured = StartDelayRelativeReason.MEASURED


KIND = StartDelayRelative()
