"""One phase took most of a slow checkpoint: the barrier came late, inputs waited for each other, state was committed
or written slowly."""

from __future__ import annotations

from dataclasses import dataclass

from monitoring.diagnosis.facts import CheckpointFacts, Scene
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.signs.base import (
    FLINK,
    SPARK,
    Sign,
    has_expired,
    has_normal,
    is_slow,
    key_of,
    lasted,
    length,
    milliseconds,
    percent,
    size,
)

SHARE = 0.4  # of the whole that a phase must have to be its cause
FULL = 0.8  # of its state that a checkpoint writes which is not incremental
_NO_BOUNDARY = "has not come to the end of"  # checkpointing.spark.agent
UNDER_PRESSURE = f"{FLINK}ops/state/checkpointing_under_backpressure/"
LARGE_STATE = f"{FLINK}ops/state/large_state_tuning/"


@dataclass(frozen=True)
class Found:
    """How long the phase took in the slowest subtask, and usually takes."""

    took: int
    usual: float | None
    whole: int


def dominant(scene: Scene, checkpoint: CheckpointFacts, phase: str) -> Found | None:
    """A phase that has its share of a slow checkpoint, and that takes longer than it usually does."""
    took, whole = getattr(checkpoint, phase), checkpoint.lasted
    if took is None or not whole or whole <= 0 or not is_slow(scene, checkpoint) or took < SHARE * whole:
        return None
    usual = getattr(scene.normal, phase) if has_normal(scene) else None
    if usual is not None and took < max(2 * usual, usual + 500):
        return None
    return Found(took, usual, whole)


class Phase(Sign):
    phase: str
    label: Words
    sentence: Words  # {number}, {took}, {share}

    def find(self, scene: Scene) -> Finding | None:
        checkpoint = scene.checkpoint
        found = dominant(scene, checkpoint, self.phase) if checkpoint else None
        if checkpoint is None or found is None:
            return None
        values: dict[str, object] = {
            "number": checkpoint.number,
            "took": length(found.took),
            "share": percent(min(found.took, found.whole), found.whole),
        }
        return Finding(
            self.name,
            self.title,
            self.sentence % values,
            (
                Evidence(self.label, milliseconds(found.took), milliseconds(found.usual)),
                *lasted(scene, checkpoint),
                *self.more(scene, checkpoint),
            ),
            self.advise(scene, checkpoint),
            Confidence.LIKELY,
            min(found.took / found.whole, 1.0),
        )

    def more(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
        return ()

    def advise(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return ()


class BackPressure(Phase):
    name = "back_pressure"
    title = Words("Back-pressure", "反压")
    phase = "start_delay"
    label = Words("Start delay of the slowest subtask", "最慢子任务的启动延迟")
    sentence = Words(
        "The barrier of checkpoint {number} took {took} to reach the slowest subtask, {share} of the whole: "
        "the job is under back-pressure, an operator takes in less than it is sent.",
        "检查点 {number} 的屏障经过 {took} 才到达最慢的子任务（占总时间 {share}）：作业处于反压状态，"
        "某个算子的处理速度低于上游。",
    )

    def find(self, scene: Scene) -> Finding | None:
        return super().find(scene) or _no_boundary(scene) or _never_arrived(scene)

    def advise(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return against_pressure(scene)


class Alignment(Phase):
    name = "alignment"
    title = Words("Waiting for alignment", "等待屏障对齐")
    phase = "alignment"
    label = Words("Alignment of the slowest subtask", "最慢子任务的对齐时间")
    sentence = Words(
        "A subtask of checkpoint {number} waited {took} from its first to its last barrier, {share} of the whole: "
        "one of its inputs is behind the others.",
        "检查点 {number} 有子任务从第一个屏障等到最后一个屏障共 {took}（占总时间 {share}）："
        "它的某个输入落后于其他输入。",
    )

    def advise(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return against_pressure(scene)


class SlowCommit(Phase):
    name = "slow_commit"
    title = Words("Long state commit", "状态提交耗时长")
    phase = "sync"
    label = Words("Synchronous part of the slowest subtask", "最慢子任务的同步阶段")
    sentence = Words(
        "The slowest subtask of checkpoint {number} spent {took} in the synchronous part, {share} of the whole: "
        "it processes nothing meanwhile.",
        "检查点 {number} 最慢的子任务在同步阶段花费 {took}（占总时间 {share}）：在此期间它不处理数据。",
    )

    def more(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
        return _sizes(scene, checkpoint)

    def advise(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        if scene.engine == "spark":
            return incremental(scene)
        why = Words(
            "keeps state outside the heap and takes its snapshots without copying", "状态存于堆外，快照无需复制"
        )
        return (
            (Advice("state.backend.type", "rocksdb", why, LARGE_STATE),) if "HashMap" in scene.settings.backend else ()
        )


class SlowStorage(Phase):
    name = "slow_storage"
    title = Words("Slow checkpoint storage", "检查点存储缓慢")
    phase = "async_"
    label = Words("Asynchronous part of the slowest subtask", "最慢子任务的异步阶段")
    sentence = Words(
        "The slowest subtask of checkpoint {number} took {took} to write its state to the checkpoint storage, "
        "{share} of the whole.",
        "检查点 {number} 最慢的子任务将状态写入检查点存储花费 {took}（占总时间 {share}）。",
    )

    def more(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
        written, took = checkpoint.checkpointed_size, checkpoint.async_
        rate = (
            (Evidence(Words("Written per second", "每秒写入"), size(written / took * 1000)),)
            if written and took
            else ()
        )
        return (*_sizes(scene, checkpoint), *rate)

    def advise(self, scene: Scene, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return incremental(scene) if writes_everything(checkpoint.checkpointed_size, checkpoint.state_size) else ()


def writes_everything(written: float | None, held: float | None) -> bool:
    return bool(written and held and written >= FULL * held)


def incremental(scene: Scene) -> tuple[Advice, ...]:
    why = Words("writes what changed, not everything", "只写入变化的部分")
    if scene.engine == "spark":
        key = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        return () if scene.settings.says(key) == "true" else (Advice(key, "true", why, SPARK),)
    key = key_of(scene, "execution.checkpointing.incremental")
    needs = Words("incremental checkpoints need it", "增量检查点需要它")
    backend = (
        (Advice("state.backend.type", "rocksdb", needs, LARGE_STATE),) if "HashMap" in scene.settings.backend else ()
    )
    return (Advice(key, "true", why, LARGE_STATE), *backend)


def against_pressure(scene: Scene) -> tuple[Advice, ...]:
    if scene.engine == "spark":
        why = Words(
            "option of the source: shorter batches let the barrier come sooner", "数据源选项：批次更短，屏障到得更早"
        )
        return (Advice("maxFilesPerTrigger / maxOffsetsPerTrigger", "", why, f"{SPARK}performance-tips.html"),)
    after = Advice(
        "execution.checkpointing.aligned-checkpoint-timeout",
        "30 s",
        Words("only what does not align within it is unaligned", "超过此时间未对齐才转为非对齐"),
        UNDER_PRESSURE,
    )
    why = Words("barriers overtake the data that waits", "屏障可越过排队的数据")
    if scene.settings.unaligned is False:
        return (Advice("execution.checkpointing.unaligned.enabled", "true", why, UNDER_PRESSURE), after)
    less = Words("less data waits in front of the barrier", "减少屏障前排队的数据")
    return (Advice("taskmanager.network.memory.buffer-debloat.enabled", "true", less, UNDER_PRESSURE),)


def _no_boundary(scene: Scene) -> Finding | None:
    """Of one that expired on our own job manager: its tasks said that the batch, whose end is the barrier, went on; or
    no subtask acknowledged, which each does right after that."""
    checkpoint = scene.checkpoint
    if checkpoint is None or not has_expired(checkpoint):
        return None
    is_said = _NO_BOUNDARY in checkpoint.failure
    if not is_said and not (scene.engine == "spark" and checkpoint.acknowledged == 0 < checkpoint.subtasks):
        return None
    said = checkpoint.failure.partition(". ")[2].strip()[:300].rstrip(".")
    limit = checkpoint.lasted if scene.settings.timeout is None else scene.settings.timeout
    values: dict[str, object] = {"number": checkpoint.number, "within": length(limit), "said": said}
    return Finding(
        BackPressure.name,
        Words("A batch longer than the time-out", "批次耗时超过超时时间"),
        Words(
            "The batch did not end within {within}, the time-out, so the barrier of checkpoint {number} never came."
            + (" {said}." if said else ""),
            "批次没有在超时时间 {within}内结束，检查点 {number} 的屏障始终没有到来。" + ("{said}。" if said else ""),
        )
        % values,
        lasted(scene, checkpoint),
        against_pressure(scene),
        Confidence.CERTAIN if is_said else Confidence.LIKELY,
        1.0,
    )


def _never_arrived(scene: Scene) -> Finding | None:
    """Of one that expired: operators of which no subtask has acknowledged, behind others that all have."""
    checkpoint = scene.checkpoint
    if checkpoint is None or not has_expired(checkpoint):
        return None
    operators = [each for each in checkpoint.operators if each.subtasks > 0]
    missing = [each for each in operators if each.acknowledged <= 0]
    if not missing or not any(each.acknowledged >= each.subtasks for each in operators):
        return None
    name = missing[0].name
    return Finding(
        BackPressure.name,
        BackPressure.title,
        Words(
            f"No subtask of “{name}” has acknowledged checkpoint {checkpoint.number} while operators "
            f"before it all have: "
            "most likely the barrier never got there, the job is under back-pressure.",
            f"“{name}”的子任务都没有确认检查点 {checkpoint.number}，而上游算子已全部确认："
            f"屏障很可能未能到达，作业处于反压状态。",
        ),
        (
            Evidence(
                Words("Acknowledged", "已确认"),
                ", ".join(f"{each.name} {each.acknowledged}/{each.subtasks}" for each in operators)[:300],
            ),
            *lasted(scene, checkpoint),
        ),
        against_pressure(scene),
        Confidence.POSSIBLE,
        0.5,
    )


def _sizes(scene: Scene, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
    if checkpoint.checkpointed_size is None:
        return ()
    usual = size(scene.normal.checkpointed_size) if has_normal(scene) else ""
    written = Evidence(Words("Written", "写入"), size(checkpoint.checkpointed_size), usual)
    held = (Evidence(Words("Full size", "状态总大小"), size(checkpoint.state_size)),) if checkpoint.state_size else ()
    return (written, *held)


SIGNS = (BackPressure(), Alignment(), SlowCommit(), SlowStorage())
