"""Find a single subtask that delayed the whole checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext_noop as _

from monitoring.diagnosis.diagnosis_facts import CheckpointFacts, DiagnosisFacts, OperatorFacts
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding
from monitoring.diagnosis.signs.base import (
    FLINK,
    SPARK,
    Label,
    Sign,
    has_expired,
    is_slow,
    known,
    lasted,
    middle,
    milliseconds,
    size,
)
from monitoring.reasons.reason import ReasonCode

TIMES = 3  # times the median of the operator's other subtasks
TIMES_OF_TWO = 5  # for two subtasks: there is only one for comparison
LEAST_MS = 1000
SHARE = 0.4


class SkewReason(ReasonCode):
    SKEW = "diagnosis.skew", _("One slow subtask (skew)")
    SLOWER_THAN_SIBLINGS = (
        "diagnosis.slower-than-siblings",
        _(
            "Subtask {subtask} of “{operator}” made checkpoint {number} wait: its {measure} was {took:milliseconds}, "
            "its siblings' {others:milliseconds}."
        ),
    )
    SUBTASK_MISSING = (
        "diagnosis.subtask-missing",
        _("Subtask {subtask} of “{operator}” has not acknowledged checkpoint {number}, but all its siblings have."),
    )
    ONE_MISSING = (
        "diagnosis.one-subtask-missing",
        _("One subtask of “{operator}” has not acknowledged checkpoint {number}, but all its siblings have."),
    )
    SIBLINGS = "diagnosis.siblings", _("its siblings")
    ITS_MEASURE = "diagnosis.its-measure", _("Its {measure}")
    ITS_STATE = "diagnosis.its-state", _("Its state")
    ASYNC_PART = "diagnosis.async-part", _("asynchronous part")
    SYNC_PART = "diagnosis.sync-part", _("synchronous part")
    END_TO_END = "diagnosis.end-to-end", _("end to end duration")
    MORE_PARTITIONS = "diagnosis.more-partitions", _("more partitions spread the keys")
    EVEN_KEYS = (
        "diagnosis.even-keys",
        _("a key with a more even distribution, or more subtasks; check what else this subtask does"),
    )


_SIBLINGS = SkewReason.SIBLINGS()
_MEASURES = {
    "async_": SkewReason.ASYNC_PART,
    "sync": SkewReason.SYNC_PART,
    "end_to_end": SkewReason.END_TO_END,
}


@dataclass(frozen=True)
class Outlier:
    operator: OperatorFacts
    measure: str
    subtask: int
    value: int
    others: float


class Skew(Sign):
    name = "skew"
    title = SkewReason.SKEW()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        checkpoint = facts.checkpoint
        if checkpoint is None or not is_slow(facts, checkpoint):
            return None
        found = max(_outliers(checkpoint), key=lambda each: each.value - each.others, default=None)
        return _slowest(facts, checkpoint, found) if found else _one_missing(facts, checkpoint)


def _outliers(checkpoint: CheckpointFacts) -> Iterator[Outlier]:
    for operator in checkpoint.operators:
        for measure in _MEASURES:
            values = known(getattr(operator, measure))
            if len(values) < 2:
                continue
            subtask, value = max(values, key=lambda each: each[1])
            others = middle([each for index, each in values if index != subtask])
            times = TIMES if len(values) > 2 else TIMES_OF_TWO
            if value >= times * others and value - others >= LEAST_MS and value >= SHARE * (checkpoint.lasted or 0):
                yield Outlier(operator, measure, subtask, value, others)


def _slowest(facts: DiagnosisFacts, checkpoint: CheckpointFacts, found: Outlier) -> Finding:
    measure = _MEASURES[found.measure]()
    return Finding(
        Skew.name,
        Skew.title,
        SkewReason.SLOWER_THAN_SIBLINGS(
            subtask=found.subtask,
            operator=found.operator.name,
            number=checkpoint.number,
            measure=measure,
            took=found.value,
            others=found.others,
        ),
        (
            Evidence(
                SkewReason.ITS_MEASURE(measure=measure),
                milliseconds(found.value),
                milliseconds(found.others),
                _SIBLINGS,
            ),
            *_its_state(found),
            *lasted(facts, checkpoint),
        ),
        _advice(facts),
        Confidence.LIKELY,
        1.0
        + min(
            1.0, found.value / max(checkpoint.lasted or 1, 1)
        ),  # ranks above the finding of its phase, because it names the subtask
    )


def _its_state(found: Outlier) -> tuple[Evidence, ...]:
    sizes = dict(known(found.operator.state_size))
    own = sizes.pop(found.subtask, None)
    if own is None or not sizes:
        return ()
    return (Evidence(SkewReason.ITS_STATE(), size(own), size(middle(list(sizes.values()))), _SIBLINGS),)


def _one_missing(facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> Finding | None:
    """Return a finding for an expired checkpoint if just one of an operator's three or more subtasks is missing."""
    if not has_expired(checkpoint):
        return None
    late = next((each for each in checkpoint.operators if 2 <= each.acknowledged == each.subtasks - 1), None)
    if late is None:
        return None
    missing = [index for index, value in enumerate(late.end_to_end[: late.subtasks]) if value is None]
    named = {"operator": late.name, "number": checkpoint.number}
    return Finding(
        Skew.name,
        Skew.title,
        SkewReason.SUBTASK_MISSING(**named, subtask=missing[0])
        if len(missing) == 1
        else SkewReason.ONE_MISSING(**named),
        (
            Evidence(Label.ACKNOWLEDGED(), f"{late.acknowledged}/{late.subtasks}"),
            *lasted(facts, checkpoint),
        ),
        _advice(facts),
        Confidence.LIKELY,
        1.0,
    )


def _advice(facts: DiagnosisFacts) -> tuple[Advice, ...]:
    if facts.engine == "spark":
        why = SkewReason.MORE_PARTITIONS()
        return (Advice("spark.sql.shuffle.partitions", "", why, f"{SPARK}performance-tips.html"),)
    why = SkewReason.EVEN_KEYS()
    return (Advice("keyBy / parallelism.default", "", why, f"{FLINK}ops/state/large_state_tuning/"),)


SIGNS = (Skew(),)
