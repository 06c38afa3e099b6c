"""The state is much larger than this job's usually is."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.relative import RelativeFigure
from monitoring.reasons.reason import ReasonCode


class StateSizeRelativeReason(ReasonCode):
    FIGURE = "alerts.state-size-figure", _("state size")
    MEASURED = "alerts.state-size-measured", _("holds a state of {value:bytes}")
    FOUND = (
        "alerts.state-size-relative",
        _(
            "Checkpoint {checkpoint} of {subject} {measured}, {percent:.0f} % of its p95 over {over}, {p95:bytes} "
            "(threshold {threshold} %)."
        ),
    )


class StateSizeRelative(RelativeFigure):
    name = "state_size_relative"
    title = _("State size against the job's own p95")
    group = _("State")
    column = "state_size"
    figure = StateSizeRelativeReason.FIGURE
    measured = StateSizeRelativeReason.MEASURED
    found = StateSizeRelativeReason.FOUND


KIND = StateSizeRelative()
