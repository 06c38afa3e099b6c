"""Find a timeout that is too close to the usual duration of the job's checkpoints."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.diagnosis.diagnosis_facts import DiagnosisFacts
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding
from monitoring.diagnosis.signs.base import FLINK, Label, Sign, has_expired, has_normal, milliseconds, nice
from monitoring.reasons.reason import ReasonCode

NEAR = 0.6  # share of the timeout that the p95 duration may reach
ROOM = 3


class TimeoutReason(ReasonCode):
    TOO_SHORT = "diagnosis.timeout-too-short", _("Timeout too short")
    NO_ROOM = (
        "diagnosis.timeout-without-room",
        _(
            "Checkpoint {number} expired after {timeout:milliseconds}, and completed checkpoints take up to "
            "{p95:milliseconds}: the timeout leaves no margin."
        ),
    )
    COMPLETED_P95 = "diagnosis.completed-p95", _("Completed checkpoints, p95")
    RAISE = "diagnosis.three-times-the-p95", _("three times the duration of completed checkpoints")


class TimeoutTooShort(Sign):
    name = "timeout_too_short"
    title = TimeoutReason.TOO_SHORT()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        checkpoint, timeout = facts.checkpoint, facts.settings.timeout
        p95 = near_timeout(facts)
        if checkpoint is None or not has_expired(checkpoint) or timeout is None or p95 is None:
            return None
        return Finding(
            self.name,
            self.title,
            TimeoutReason.NO_ROOM(number=checkpoint.number, timeout=timeout, p95=p95),
            (
                Evidence(Label.TIMEOUT(), milliseconds(timeout)),
                Evidence(TimeoutReason.COMPLETED_P95(), milliseconds(p95)),
                Evidence(Label.ACKNOWLEDGED(), f"{checkpoint.acknowledged}/{checkpoint.subtasks}"),
            ),
            advice(p95),
            Confidence.LIKELY,
            p95 / timeout,
        )


def near_timeout(facts: DiagnosisFacts) -> float | None:
    """Return the p95 duration of completed checkpoints if it is near the timeout, else None."""
    p95, timeout = facts.normal.duration_p95, facts.settings.timeout
    return p95 if has_normal(facts) and p95 is not None and timeout and p95 >= NEAR * timeout else None


def advice(p95: float) -> tuple[Advice, ...]:
    why = TimeoutReason.RAISE()
    link = f"{FLINK}dev/datastream/fault-tolerance/checkpointing/"
    return (Advice("execution.checkpointing.timeout", nice(ROOM * p95), why, link),)


SIGNS = (TimeoutTooShort(),)
