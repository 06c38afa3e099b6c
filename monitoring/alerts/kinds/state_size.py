"""The state is too large."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Number, Unit
from monitoring.alerts.kinds.levels import CheckpointFigure
from monitoring.reasons.reason import ReasonCode

_GB = 1024**3


class StateSizeReason(ReasonCode):
    RULE = (
        "alerts.state-size-rule",
        _("Opens when the state of the last completed checkpoint is {threshold:bytes} or larger."),
    )
    FOUND = (
        "alerts.state-size",
        _("Checkpoint {checkpoint} of {subject} holds a state of {value:bytes} (threshold {threshold:bytes})."),
    )


class StateSize(CheckpointFigure):
    name = "state_size"
    title = _("State size")
    group = _("State")
    unit = Unit.BYTES
    column = "state_size"
    rule = StateSizeReason.RULE
    found = StateSizeReason.FOUND
    threshold = Number(_("Threshold"), Unit.BYTES, 10 * _GB, 1, 1024**6, _("Such as 500 MB or 10 GB, of 1024 each."))


KIND = StateSize()
