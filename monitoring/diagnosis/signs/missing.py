"""Explain a missing checkpoint: not triggered, blocked by a pending one, or Waymark has no information."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.translation import gettext_noop as _

from monitoring.diagnosis.diagnosis_facts import DiagnosisFacts
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding
from monitoring.diagnosis.signs.base import FLINK, Figure, Label, Sign, milliseconds
from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode

INTERVALS = 3
LEAST = timedelta(minutes=1)


class MissingReason(ReasonCode):
    NOT_SEEN = "diagnosis.not-seen", _("Waymark could not poll the cluster")
    CLUSTER_SILENT = (
        "diagnosis.cluster-silent",
        _("Waymark has received no data from the cluster since {since:second}. The job may still take checkpoints."),
    )
    SILENT_FOR = "diagnosis.silent-for", _("No data for")

    HELD_UP = "diagnosis.held-up", _("A pending checkpoint delays the next one")
    NEXT_WAITS = (
        "diagnosis.next-waits",
        ngettext(
            "Checkpoint {number} has been pending for {lasted:milliseconds}, and {acknowledged} of "
            "{subtasks} subtask has acknowledged it. The next checkpoint waits for it.",
            "Checkpoint {number} has been pending for {lasted:milliseconds}, and {acknowledged} of "
            "{subtasks} subtasks have acknowledged it. The next checkpoint waits for it.",
            "subtasks",
        ),
    )

    NOT_TRIGGERED = "diagnosis.not-triggered", _("No checkpoint is triggered")
    OVERDUE = (
        "diagnosis.overdue",
        _(
            "No checkpoint has been triggered for {ago:length}, although one is due every "
            "{interval:milliseconds}: not all tasks are running, or the job manager is too busy."
        ),
    )
    AFTER_TASKS_FINISH = "diagnosis.after-tasks-finish", _("if some tasks have finished")


class NotSeen(Sign):
    name = "not_seen"
    title = MissingReason.NOT_SEEN()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        if facts.checkpoint is not None or facts.silent_since is None:
            return None
        return Finding(
            self.name,
            self.title,
            MissingReason.CLUSTER_SILENT(since=facts.silent_since),
            (Evidence(MissingReason.SILENT_FOR(), Figure.LENGTH(length=facts.now - facts.silent_since)),),
            confidence=Confidence.CERTAIN,
            weight=3.0,
        )


class HeldUp(Sign):
    name = "held_up"
    title = MissingReason.HELD_UP()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        checkpoint, interval = facts.checkpoint, facts.settings.interval
        if checkpoint is None or not checkpoint.is_pending or not interval or checkpoint.lasted is None:
            return None
        if checkpoint.is_savepoint or (facts.settings.max_concurrent or 1) > 1:
            return None
        if checkpoint.lasted < max(INTERVALS * interval, LEAST / timedelta(milliseconds=1)):
            return None
        return Finding(
            self.name,
            self.title,
            MissingReason.NEXT_WAITS(
                number=checkpoint.number,
                lasted=checkpoint.lasted,
                acknowledged=checkpoint.acknowledged,
                subtasks=checkpoint.subtasks,
            ),
            (
                Evidence(Label.INTERVAL(), milliseconds(interval)),
                Evidence(Label.TIMEOUT(), milliseconds(facts.settings.timeout) or "?"),
            ),
            confidence=Confidence.LIKELY,
            weight=0.1,
        )


class NotTriggered(Sign):
    name = "not_triggered"
    title = MissingReason.NOT_TRIGGERED()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        interval, last = facts.settings.interval, _last(facts)
        if facts.checkpoint is not None or not facts.runs or facts.silent_since is not None or not interval or not last:
            return None
        limit = max(INTERVALS * timedelta(milliseconds=interval + (facts.settings.min_pause or 0)), LEAST)
        if facts.now - last < limit:
            return None
        return Finding(
            self.name,
            self.title,
            MissingReason.OVERDUE(ago=facts.now - last, interval=interval),
            (Evidence(Label.INTERVAL(), milliseconds(interval)),),
            (
                Advice(
                    "execution.checkpointing.checkpoints-after-tasks-finish",
                    "true",
                    MissingReason.AFTER_TASKS_FINISH(),
                    f"{FLINK}dev/datastream/fault-tolerance/checkpointing/",
                ),
            )
            if facts.engine == "flink"
            else (),
            Confidence.POSSIBLE,
            0.5,
        )


def _last(facts: DiagnosisFacts) -> datetime | None:
    """Return the time from which the next trigger is due: the last trigger, or the run's start if it is later."""
    moments = [at for at in (facts.last_triggered_at, facts.run_started_at) if at is not None]
    return max(moments, default=None)


SIGNS = (NotSeen(), HeldUp(), NotTriggered())
