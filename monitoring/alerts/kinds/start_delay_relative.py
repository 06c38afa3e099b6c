"""Barriers arrive much later than this job's usually do."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.relative import RelativeDuration


class StartDelayRelative(RelativeDuration):
    name = "start_delay_relative"
    title = _("Start delay against the job's own p95")
    column = "start_delay_max"
    phrase = "had a subtask that its first barrier reached after"
    figure = "longest start delay"


KIND = StartDelayRelative()
