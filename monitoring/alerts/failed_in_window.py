"""The rule kind "failed checkpoints within a window": what its numbers mean. No I/O and no clock in here.

Counted are distinct failed ids, by their own time of failure, over all runs of the job: what one poll or ten saw makes
no difference, nor does a job manager whose counters start again at zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from monitoring.alerts.failure_reason import failure_in_words
from monitoring.durations import in_words

EVIDENCE_IDS = 20


@dataclass(frozen=True)
class Condition:
    """What the rule asks for, and whose checkpoints it is about."""

    job: str
    threshold: int
    window: timedelta


@dataclass(frozen=True)
class FailedCheckpoint:
    row: int  # primary key of the stored checkpoint
    checkpoint_id: int
    message: str


@dataclass(frozen=True)
class WindowFacts:
    """The failed checkpoints in (now - window, now]: how many, the newest ids first, and the newest one."""

    count: int = 0
    ids: tuple[int, ...] = ()
    last: FailedCheckpoint | None = None


@dataclass(frozen=True)
class Met:
    sentence: str
    evidence: dict[str, object]


@dataclass(frozen=True)
class NotMet:
    sentence: str
    evidence: dict[str, object]


def decide(condition: Condition, facts: WindowFacts) -> Met | NotMet:
    evidence: dict[str, object] = {
        "count": facts.count,
        "threshold": condition.threshold,
        "window_s": int(condition.window.total_seconds()),
        "checkpoint_ids": list(facts.ids[:EVIDENCE_IDS]),
        "last_row": facts.last.row if facts.last else None,
    }
    counted = (
        f"{facts.count} {'checkpoint' if facts.count == 1 else 'checkpoints'} of {condition.job} failed "
        f"within {in_words(condition.window)} (threshold {condition.threshold})"
    )
    if facts.count < condition.threshold:
        return NotMet(f"{counted}.", evidence)
    last = facts.last
    tail = f": the last, {last.checkpoint_id}, {failure_in_words(last.message)}" if last else ""
    return Met(f"{counted}{tail}.", evidence)
