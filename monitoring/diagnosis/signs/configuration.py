"""What of a job's configuration asks for trouble. Only what is known to be so is said: a key that the engine does not
tell is taken for well set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.scene import Scene
from monitoring.diagnosis.signs import timeout_too_short
from monitoring.diagnosis.signs.base import (
    FLINK,
    Sign,
    has_normal,
    key_of,
    length,
    milliseconds,
    nice,
    percent,
    size,
)
from monitoring.diagnosis.signs.phases import LARGE_STATE, incremental, writes_everything

BIG = 1024**3
CHECKPOINTING = f"{FLINK}dev/datastream/fault-tolerance/checkpointing/"
CHECKPOINTS = f"{FLINK}ops/state/checkpoints/"
FAILURES = f"{FLINK}ops/state/task_failure_recovery/"


class Counsel(Sign):
    """`weight`: how much it matters, among advices."""

    of_checkpoint = False
    weight = 0.5
    at: ClassVar[str] = ""  # the engine's name of the setting in /checkpoints/config

    def find(self, scene: Scene) -> Finding | None:
        sentence = self.sentence(scene) if scene.checkpoint is None else None
        if sentence is None:
            return None
        advice, evidence = self.advise(scene), self.evidence(scene)
        return Finding(self.name, self.title, sentence, evidence, advice, Confidence.CERTAIN, self.weight, self.at)

    @abstractmethod
    def sentence(self, scene: Scene) -> Words | None:
        """None: nothing is wrong with it, as far as is known."""

    @abstractmethod
    def advise(self, scene: Scene) -> Sequence[Advice]: ...

    def evidence(self, scene: Scene) -> Sequence[Evidence]:
        return ()


class IntervalTooShort(Counsel):
    name = "interval_too_short"
    at = "min_pause"
    title = Words("Interval shorter than a checkpoint", "间隔短于检查点耗时")
    weight = 0.9

    def sentence(self, scene: Scene) -> Words | None:
        interval, usual = scene.settings.interval, scene.normal.duration
        if not interval or usual is None or not has_normal(scene) or usual < interval:
            return None
        if (scene.settings.min_pause or 0) >= interval / 2:
            return None
        return Words(
            "Checkpoints take {usual} and are due every {interval}: one follows the other without a pause, and the job "
            "does little else.",
            "检查点耗时 {usual}，而间隔为 {interval}：检查点一个接一个，作业几乎没有时间处理数据。",
        ) % {"usual": length(usual), "interval": length(interval)}

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("time to work between two checkpoints", "为两次检查点之间留出处理时间")
        return (Advice("execution.checkpointing.min-pause", nice(scene.normal.duration or 0), why, CHECKPOINTING),)

    def evidence(self, scene: Scene) -> Sequence[Evidence]:
        return (
            Evidence(Words("Median duration", "耗时中位数"), milliseconds(scene.normal.duration)),
            Evidence(Words("Interval", "间隔"), milliseconds(scene.settings.interval)),
            Evidence(Words("Minimum pause", "最小间歇"), milliseconds(scene.settings.min_pause or 0)),
        )


class TimeoutNear(Counsel):
    name = "timeout_near"
    at = "timeout"
    title = Words("Little room up to the time-out", "接近超时时间")
    weight = 0.8

    def sentence(self, scene: Scene) -> Words | None:
        p95, timeout = timeout_too_short.near_timeout(scene), scene.settings.timeout
        if p95 is None or timeout is None:
            return None
        return Words(
            "One in twenty checkpoints takes {p95} or longer, of a time-out of {timeout}: the next slow one expires.",
            "每二十个检查点就有一个耗时 {p95}以上，而超时时间为 {timeout}：稍慢即会超时。",
        ) % {"p95": length(p95), "timeout": length(timeout)}

    def advise(self, scene: Scene) -> Sequence[Advice]:
        return timeout_too_short.advice(scene.normal.duration_p95 or 0)


class NoPeriodicCheckpoints(Counsel):
    name = "no_periodic_checkpoints"
    at = "interval"
    title = Words("No periodic checkpoints", "未启用定期检查点")
    weight = 1.0

    def sentence(self, scene: Scene) -> Words | None:
        if not scene.runs or scene.settings.interval is not None or not scene.settings.mode:
            return None
        return Words(
            "The job takes no checkpoints by itself: after a failure it begins anew, or from its last savepoint.",
            "作业不会自动做检查点：失败后只能从头或从最近的保存点开始。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("how much is processed again after a failure", "决定失败后重新处理的数据量")
        return (Advice("execution.checkpointing.interval", "1 min", why, CHECKPOINTING),)


class OneRetained(Counsel):
    name = "one_retained"
    at = "num_retained"
    title = Words("Only one checkpoint is retained", "仅保留一个检查点")

    def sentence(self, scene: Scene) -> Words | None:
        if scene.settings.retained != 1 or scene.settings.interval is None:
            return None
        return Words(
            "Only the newest checkpoint is kept: if its files are damaged there is nothing older to go back to.",
            "仅保留最新的检查点：如果其文件损坏，就没有更早的可用。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("one older state to fall back on, or two", "保留一两个更早的状态")
        return (Advice(key_of(scene, "execution.checkpointing.num-retained"), "3", why, CHECKPOINTS),)


class NotKept(Counsel):
    name = "not_kept"
    at = "externalization"
    title = Words("Checkpoints go with the job", "检查点随作业删除")

    def sentence(self, scene: Scene) -> Words | None:
        if scene.settings.kept_after_end is not False or scene.settings.interval is None:
            return None
        return Words(
            "When the job fails for good or is cancelled its checkpoints are deleted: it can be "
            "restarted from a savepoint only.",
            "作业彻底失败或被取消时检查点会被删除：只能从保存点重启。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        key = "execution.checkpointing.externalized-checkpoint-retention"
        why = Words("a restart takes up the newest state", "重启时可使用最新状态")
        return (Advice(key, "RETAIN_ON_CANCELLATION", why, CHECKPOINTS),)


class NoSavepoints(Counsel):
    name = "no_savepoint_schedule"
    title = Words("No savepoint schedule", "没有保存点计划")
    weight = 0.3

    def sentence(self, scene: Scene) -> Words | None:
        if scene.savepoints_are_scheduled or not scene.savepoints_are_ours or not scene.runs:
            return None
        return Words(
            "No savepoints are taken on a schedule: an upgrade or another cluster has only the "
            "engine's own checkpoints to start from.",
            "没有定期保存点：升级或迁移时只能依赖引擎自己的检查点。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("on this job's Configuration tab", "在此作业的“Configuration”页设置")
        return (Advice("Waymark: savepoint schedule", "every 1 d", why),)


class NoTolerance(Counsel):
    name = "no_tolerance"
    at = "tolerable_failed_checkpoints"
    title = Words("A failed checkpoint restarts the job", "检查点失败会导致作业重启")
    weight = 0.7

    def sentence(self, scene: Scene) -> Words | None:
        if scene.settings.tolerable != 0 or scene.failed_lately < 1 or scene.restarted_lately < 1:
            return None
        return Words(
            f"No failed checkpoint is tolerated, and {scene.failed_lately} failed within a week: each "
            f"may restart the job "
            f"({scene.restarted_lately} restart{'' if scene.restarted_lately == 1 else 's'}), which costs more than a "
            "missing checkpoint.",
            f"不容忍任何检查点失败，而一周内有 {scene.failed_lately} 个失败：每次都可能导致作业重启（"
            f"共 {scene.restarted_lately} 次重启）。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("the next one may succeed", "下一个可能成功")
        return (Advice("execution.checkpointing.tolerable-failed-checkpoints", "3", why, CHECKPOINTING),)

    def evidence(self, scene: Scene) -> Sequence[Evidence]:
        return (
            Evidence(Words("Failed within 7 d", "7 天内失败"), str(scene.failed_lately)),
            Evidence(Words("Restarts within 7 d", "7 天内重启"), str(scene.restarted_lately)),
        )


class NoRestart(Counsel):
    name = "no_restart"
    title = Words("Nothing restarts the job", "作业失败后无人重启")
    weight = 0.8

    def sentence(self, scene: Scene) -> Words | None:
        strategy = scene.settings.restart_strategy.strip().lower()
        off = strategy in ("none", "disable", "off") or "restart deactivated" in strategy
        if not off or scene.restarts_are_ours:
            return None
        return Words(
            "The first failure ends the job: its engine does not restart it, and neither does Waymark.",
            "首次失败就会结束作业：引擎和 Waymark 都不会重启它。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        here = Words("on this job's Configuration tab", "在此作业的“Configuration”页设置")
        why = Words("short failures heal by themselves", "短暂故障可自行恢复")
        return (
            Advice("restart-strategy.type", "exponential-delay", why, FAILURES),
            Advice("Waymark: restart it when it is dead", "on", here),
        )


class BigStateFull(Counsel):
    name = "big_state_full"
    at = "state_backend"
    title = Words("Big state written in full", "大状态全量写入")
    weight = 0.6

    def sentence(self, scene: Scene) -> Words | None:
        held, written = scene.normal.state_size, scene.normal.checkpointed_size
        if not has_normal(scene) or held is None or held < BIG or not writes_everything(written, held):
            return None
        return Words(
            f"Each checkpoint writes {size(written)} of {size(held)} state, "
            f"{percent(written or 0, held)}: it is not incremental.",
            f"每个检查点写入 {size(written)}，状态共 {size(held)}（{percent(written or 0, held)}）：不是增量检查点。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        return incremental(scene)

    def evidence(self, scene: Scene) -> Sequence[Evidence]:
        return (
            Evidence(Words("Written", "写入"), size(scene.normal.checkpointed_size)),
            Evidence(Words("Full size", "状态总大小"), size(scene.normal.state_size)),
        )


class NoLocalRecovery(Counsel):
    name = "no_local_recovery"
    title = Words("Big state without local recovery", "大状态未启用本地恢复")
    weight = 0.2
    _KEYS = ("execution.state-recovery.from-local", "state.backend.local-recovery")

    def sentence(self, scene: Scene) -> Words | None:
        held = scene.normal.state_size
        if held is None or held < BIG or scene.settings.says(*self._KEYS) != "false":
            return None
        return Words(
            f"A restart reads all {size(held)} of state from the checkpoint storage: local recovery is off.",
            f"重启时需从检查点存储读取全部 {size(held)} 状态：未启用本地恢复。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("what a machine still has is not read again", "机器上仍有的数据无需重新读取")
        return (Advice(key_of(scene, self._KEYS[0]), "true", why, LARGE_STATE),)


class AtLeastOnce(Counsel):
    name = "at_least_once"
    at = "mode"
    title = Words("At least once", "至少一次")
    weight = 0.1

    def sentence(self, scene: Scene) -> Words | None:
        if scene.settings.mode.lower() != "at_least_once":
            return None
        return Words(
            "After a restart some input counts twice in the state: the job checkpoints at least once, "
            "not exactly once.",
            "重启后部分输入会在状态中被重复计算：作业为至少一次，而非精确一次。",
        )

    def advise(self, scene: Scene) -> Sequence[Advice]:
        why = Words("if its results must be exact", "如果结果必须精确")
        return (Advice("execution.checkpointing.mode", "EXACTLY_ONCE", why, CHECKPOINTING),)


SIGNS = (
    IntervalTooShort(),
    TimeoutNear(),
    NoPeriodicCheckpoints(),
    OneRetained(),
    NotKept(),
    NoSavepoints(),
    NoTolerance(),
    NoRestart(),
    BigStateFull(),
    NoLocalRecovery(),
    AtLeastOnce(),
)
