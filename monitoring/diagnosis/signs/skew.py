"""One subtask made the whole checkpoint wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.scene import CheckpointFacts, OperatorFacts, Scene
from monitoring.diagnosis.signs.base import (
    FLINK,
    SPARK,
    Sign,
    has_expired,
    is_slow,
    known,
    lasted,
    length,
    middle,
    milliseconds,
    size,
)

TIMES = 3  # as much as its siblings' median
TIMES_OF_TWO = 5  # of two there is only one to compare with
LEAST_MS = 1000
SHARE = 0.4
_SIBLINGS = Words("its siblings", "其他子任务")
_MEASURES = {
    "async_": Words("asynchronous part", "异步阶段"),
    "sync": Words("synchronous part", "同步阶段"),
    "end_to_end": Words("end to end duration", "端到端耗时"),
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
    title = Words("One subtask (skew)", "单个子任务过慢（数据倾斜）")

    def find(self, scene: Scene) -> Finding | None:
        checkpoint = scene.checkpoint
        if checkpoint is None or not is_slow(scene, checkpoint):
            return None
        found = max(_outliers(checkpoint), key=lambda each: each.value - each.others, default=None)
        return _slowest(scene, checkpoint, found) if found else _one_missing(scene, checkpoint)


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


def _slowest(scene: Scene, checkpoint: CheckpointFacts, found: Outlier) -> Finding:
    words = _MEASURES[found.measure]
    values: dict[str, object] = {
        "subtask": found.subtask,
        "operator": found.operator.name,
        "number": checkpoint.number,
        "measure": words,
        "took": length(found.value),
        "others": length(found.others),
    }
    return Finding(
        Skew.name,
        Skew.title,
        Words(
            "Subtask {subtask} of “{operator}” made checkpoint {number} wait: "
            "its {measure} was {took}, its siblings' {others}.",
            "“{operator}”的子任务 {subtask} 拖慢了检查点 {number}：其{measure}为 {took}，其他子任务为 {others}。",
        )
        % values,
        (
            Evidence(
                Words(f"Its {words.en}", f"其{words.zh}"),
                milliseconds(found.value),
                milliseconds(found.others),
                _SIBLINGS,
            ),
            *_its_state(found),
            *lasted(scene, checkpoint),
        ),
        _advice(scene),
        Confidence.LIKELY,
        1.0 + min(1.0, found.value / max(checkpoint.lasted or 1, 1)),  # it names the subtask: before its phase
    )


def _its_state(found: Outlier) -> tuple[Evidence, ...]:
    sizes = dict(known(found.operator.state_size))
    own = sizes.pop(found.subtask, None)
    if own is None or not sizes:
        return ()
    return (Evidence(Words("Its state", "其状态大小"), size(own), size(middle(list(sizes.values()))), _SIBLINGS),)


def _one_missing(scene: Scene, checkpoint: CheckpointFacts) -> Finding | None:
    """Of one that expired: all but one of an operator's three or more have acknowledged."""
    if not has_expired(checkpoint):
        return None
    late = next((each for each in checkpoint.operators if 2 <= each.acknowledged == each.subtasks - 1), None)
    if late is None:
        return None
    missing = [index for index, value in enumerate(late.end_to_end[: late.subtasks]) if value is None]
    which = f"Subtask {missing[0]}" if len(missing) == 1 else "One subtask"
    which_zh = f"子任务 {missing[0]}" if len(missing) == 1 else "一个子任务"
    return Finding(
        Skew.name,
        Skew.title,
        Words(
            f"{which} of “{late.name}” has not acknowledged checkpoint {checkpoint.number}, its siblings all have.",
            f"“{late.name}”的{which_zh}没有确认检查点 {checkpoint.number}，其他子任务均已确认。",
        ),
        (
            Evidence(Words("Acknowledged", "已确认"), f"{late.acknowledged}/{late.subtasks}"),
            *lasted(scene, checkpoint),
        ),
        _advice(scene),
        Confidence.LIKELY,
        1.0,
    )


def _advice(scene: Scene) -> tuple[Advice, ...]:
    if scene.engine == "spark":
        why = Words("more partitions spread the keys", "更多分区以分散键")
        return (Advice("spark.sql.shuffle.partitions", "", why, f"{SPARK}performance-tips.html"),)
    why = Words(
        "a key of more even spread, or more subtasks; what else this subtask does", "选择更均匀的键或提高并行度"
    )
    return (Advice("keyBy / parallelism.default", "", why, f"{FLINK}ops/state/large_state_tuning/"),)


SIGNS = (Skew(),)
