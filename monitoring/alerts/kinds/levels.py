"""Kinds that compare a figure of the last completed checkpoint with a threshold."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode

_GB = 1024**3


class NoCheckpoint(ReasonCode):
    NONE_COMPLETED = "alerts.no-checkpoint-yet", _("No checkpoint of {subject} has completed.")


class CheckpointFigure(Kind):
    """A kind for the figure in `column` of a stored checkpoint. The figure counts until the next checkpoint completes.

    `rule` is the code of the rule's text. `found` is the code of the incident's text.
    """

    source = Source.METRIC
    unit = Unit.MILLISECONDS
    group = _("Checkpoints")
    reach = timedelta(days=1)
    column: ClassVar[str]
    rule: ClassVar[ReasonCode]
    found: ClassVar[ReasonCode]

    def explain(self, terms: Terms) -> Reason:
        return self.rule(threshold=terms.threshold or 0)

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        last = facts.last(at)
        return last.value if last else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last = facts.last(at)
        if last is None:
            return Finding(NoCheckpoint.NONE_COMPLETED(subject=subject), {"threshold": terms.threshold})
        return Finding(
            self.found(checkpoint=last.number, subject=subject, value=last.value, threshold=terms.threshold or 0),
            {"value": last.value, "threshold": terms.threshold, "checkpoint_id": last.number, "last_row": last.row},
        )


class EndToEndDurationReason(ReasonCode):
    RULE = (
        "alerts.end-to-end-duration-rule",
        _("Opens when the last completed checkpoint took {threshold:milliseconds} or longer, end to end."),
    )
    FOUND = (
        "alerts.end-to-end-duration",
        _(
            "Checkpoint {checkpoint} of {subject} took {value:milliseconds} end to end (threshold "
            "{threshold:milliseconds})."
        ),
    )


class EndToEndDuration(CheckpointFigure):
    name = "end_to_end_duration"
    title = _("End to end duration")
    column = "end_to_end_duration"
    rule = EndToEndDurationReason.RULE
    found = EndToEndDurationReason.FOUND
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 60_000, 1, 30 * 86_400_000, _("Such as 60 s."))


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


class StartDelayReason(ReasonCode):
    RULE = (
        "alerts.start-delay-rule",
        _(
            "Opens when the first barrier of the last completed checkpoint took {threshold:milliseconds} or longer "
            "to reach a subtask."
        ),
    )
    FOUND = (
        "alerts.start-delay",
        _(
            "Checkpoint {checkpoint} of {subject} had a subtask whose first barrier arrived after "
            "{value:milliseconds} (threshold {threshold:milliseconds})."
        ),
    )


class StartDelay(CheckpointFigure):
    name = "start_delay"
    title = _("Start delay")
    column = "start_delay_max"
    rule = StartDelayReason.RULE
    found = StartDelayReason.FOUND
    threshold = Number(_("Threshold"), Unit.MILLISECONDS, 30_000, 1, 30 * 86_400_000, _("Such as 500 ms or 30 s."))


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
    threshold = Number(_("Threshold"), Unit.BYTES, 10 * _GB, 1, 1024**6, _("Such as 500 MB or 10 GB (1 GB = 1024 MB)."))


KINDS = (EndToEndDuration(), Alignment(), StartDelay(), StateSize())
