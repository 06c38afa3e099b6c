"""One phase took most of a slow checkpoint: the barrier came late, inputs waited for each other, state was committed
or written slowly."""

from __future__ import annotations

from dataclasses import dataclass

from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.scene import CheckpointFacts, OperatorFacts, Scene
from monitoring.diagnosis.signs.base import (
    FLINK,
    SPARK,
    Sign,
    has_expired,
    has_normal,
    is_slow,
    key_of,
    known,
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
        late = super().find(scene) if _late_source(scene) is None else None
        return late or _no_boundary(scene) or _never_arrived(scene)

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
    """Return a finding for an expired checkpoint that an operator never acknowledged though all of its inputs did."""
    checkpoint = scene.checkpoint
    if checkpoint is None or not has_expired(checkpoint):
        return None
    complete = {each.vertex: each.name for each in checkpoint.operators if each.is_complete}
    missing = next((each for each in _silent(checkpoint) if each.inputs and complete.keys() >= {*each.inputs}), None)
    if missing is None:
        return None
    before = ", ".join(complete[vertex] for vertex in missing.inputs or ())[:300]
    values: dict[str, object] = {"name": missing.name, "number": checkpoint.number, "before": before}
    return Finding(
        BackPressure.name,
        BackPressure.title,
        Words(
            "No subtask of “{name}” has acknowledged checkpoint {number}, while every subtask before it "
            "({before}) has: most likely the barrier is held up in front of it and the job is under back-pressure.",
            "“{name}”的子任务都没有确认检查点 {number}，而其上游（{before}）的子任务已全部确认："
            "屏障很可能在它之前受阻，作业处于反压状态。",
        )
        % values,
        (_acknowledged(checkpoint), *lasted(scene, checkpoint)),
        against_pressure(scene),
        Confidence.POSSIBLE,
        0.5,
    )


def _silent(checkpoint: CheckpointFacts) -> list[OperatorFacts]:
    """Return the operators of which no subtask has acknowledged."""
    return [each for each in checkpoint.operators if each.subtasks > 0 and each.acknowledged <= 0]


def _acknowledged(checkpoint: CheckpointFacts) -> Evidence:
    counts = (f"{each.name} {each.acknowledged}/{each.subtasks}" for each in checkpoint.operators if each.subtasks > 0)
    return Evidence(Words("Acknowledged", "已确认"), ", ".join(counts)[:300])


@dataclass(frozen=True)
class LateSource:
    """A source that started the checkpoint late. `after`: its start delay in ms; None: it never acknowledged."""

    name: str
    after: int | None


def _late_source(scene: Scene) -> LateSource | None:
    """Return the source of a slow or expired checkpoint that is late itself, so that nothing before it explains it.

    Only Flink's sources: in Spark the barrier is the end of a batch, which all operators reach together.
    """
    checkpoint = scene.checkpoint
    if checkpoint is None or scene.engine == "spark" or not is_slow(scene, checkpoint):
        return None
    sources = [each for each in checkpoint.operators if each.is_source]
    found = dominant(scene, checkpoint, BackPressure.phase)
    for each in sources:
        delay = max((value for _, value in known(each.start_delay)), default=0)
        if found is not None and delay >= SHARE * found.whole:
            return LateSource(each.name, delay)
    some_complete = any(each.is_complete for each in checkpoint.operators)
    silent = [each for each in _silent(checkpoint) if each.is_source and some_complete]
    return LateSource(silent[0].name, None) if silent and has_expired(checkpoint) else None


class BusySource(Sign):
    name = "busy_source"
    title = Words("A source is busy", "数据源繁忙")

    def find(self, scene: Scene) -> Finding | None:
        source, checkpoint = _late_source(scene), scene.checkpoint
        if source is None or checkpoint is None:
            return None
        values: dict[str, object] = {
            "name": source.name,
            "number": checkpoint.number,
            "after": length(source.after),
        }
        return Finding(
            self.name,
            self.title,
            (_NEVER_ACKNOWLEDGED if source.after is None else _STARTED_LATE) % values,
            (_acknowledged(checkpoint), *lasted(scene, checkpoint)),
            confidence=Confidence.POSSIBLE,
            weight=0.5,
        )


_NEVER_ACKNOWLEDGED = Words(
    "No subtask of the source “{name}” has acknowledged checkpoint {number}. A barrier starts at the sources, so no "
    "operator holds it up before this one: the source is slow to take its own snapshot, or its thread is busy.",
    "数据源“{name}”的子任务都没有确认检查点 {number}。屏障从数据源开始，因此不是上游算子造成的："
    "该数据源自身的快照耗时过长，或其线程繁忙。",
)
_STARTED_LATE = Words(
    "The source “{name}” started checkpoint {number} only after {after}. A barrier starts at the sources, so no "
    "operator held it up before this one: its thread was busy, for example with its previous snapshot.",
    "数据源“{name}”在 {after} 之后才开始检查点 {number}。屏障从数据源开始，因此不是上游算子造成的："
    "该数据源的线程繁忙，例如仍在进行上一次快照。",
)


def _sizes(scene: Scene, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
    if checkpoint.checkpointed_size is None:
        return ()
    usual = size(scene.normal.checkpointed_size) if has_normal(scene) else ""
    written = Evidence(Words("Written", "写入"), size(checkpoint.checkpointed_size), usual)
    held = (Evidence(Words("Full size", "状态总大小"), size(checkpoint.state_size)),) if checkpoint.state_size else ()
    return (written, *held)


SIGNS = (BackPressure(), BusySource(), Alignment(), SlowCommit(), SlowStorage())
