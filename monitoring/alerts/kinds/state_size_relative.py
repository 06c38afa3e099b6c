"""The state is much larger than this job's usually is."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Unit
from monitoring.alerts.kinds.relative import RelativeFigure


class StateSizeRelative(RelativeFigure):
    name = "state_size_relative"
    title = _("State size against the job's own p95")
    group = _("State")
    measured_in = Unit.BYTES
    column = "state_size"
    phrase = "holds a state of"
    figure = "state size"


KIND = StateSizeRelative()
