"""No checkpoint where one is due: it was not triggered, one that is pending holds it up, or nobody could see."""

from __future__ import annotations

from datetime import datetime, timedelta

from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.scene import Scene
from monitoring.diagnosis.signs.base import FLINK, Sign, length, length_of, milliseconds
from monitoring.durations import in_words

INTERVALS = 3
LEAST = timedelta(minutes=1)


class NotSeen(Sign):
    name = "not_seen"
    title = Words("Nobody could look", "无法观察")

    def find(self, scene: Scene) -> Finding | None:
        if scene.checkpoint is not None or scene.silent_since is None:
            return None
        since = f"{scene.silent_since:%Y-%m-%d %H:%M:%S} UTC"
        return Finding(
            self.name,
            self.title,
            Words(
                f"Nothing is learned of the cluster since {since}: the job may well checkpoint, nobody can see it.",
                f"自 {since} 起没有从集群获得任何信息：作业可能仍在做检查点，但无法看到。",
            ),
            (Evidence(Words("For", "时长"), in_words(scene.now - scene.silent_since)),),
            confidence=Confidence.CERTAIN,
            weight=3.0,
        )


class HeldUp(Sign):
    name = "held_up"
    title = Words("A pending checkpoint holds up the next", "未完成的检查点阻塞后续")

    def find(self, scene: Scene) -> Finding | None:
        checkpoint, interval = scene.checkpoint, scene.settings.interval
        if checkpoint is None or not checkpoint.is_pending or not interval or checkpoint.lasted is None:
            return None
        if checkpoint.is_savepoint or (scene.settings.max_concurrent or 1) > 1:
            return None
        if checkpoint.lasted < max(INTERVALS * interval, LEAST / timedelta(milliseconds=1)):
            return None
        return Finding(
            self.name,
            self.title,
            Words(
                "Checkpoint {number} is pending for {lasted}, {acknowledged} of {subtasks} subtasks have acknowledged; "
                "the next one waits for it.",
                "检查点 {number} 已等待 {lasted}，{subtasks} 个子任务中有 {acknowledged} 个已确认；"
                "下一个检查点须等它结束。",
            )
            % {
                "number": checkpoint.number,
                "lasted": length(checkpoint.lasted),
                "acknowledged": checkpoint.acknowledged,
                "subtasks": checkpoint.subtasks,
            },
            (
                Evidence(Words("Interval", "间隔"), milliseconds(interval)),
                Evidence(Words("Time-out", "超时时间"), milliseconds(scene.settings.timeout) or "?"),
            ),
            confidence=Confidence.LIKELY,
            weight=0.1,
        )


class NotTriggered(Sign):
    name = "not_triggered"
    title = Words("No checkpoint is triggered", "未触发检查点")

    def find(self, scene: Scene) -> Finding | None:
        interval, last = scene.settings.interval, _last(scene)
        if scene.checkpoint is not None or not scene.runs or scene.silent_since is not None or not interval or not last:
            return None
        limit = max(INTERVALS * timedelta(milliseconds=interval + (scene.settings.min_pause or 0)), LEAST)
        if scene.now - last < limit:
            return None
        times: dict[str, object] = {"ago": length_of(scene.now - last), "interval": length(interval)}
        return Finding(
            self.name,
            self.title,
            Words(
                "No checkpoint has been triggered for {ago}, though one is due every {interval}: "
                "not all tasks run, or the job manager does not get to it.",
                "已 {ago}没有触发检查点，而间隔为 {interval}：可能并非所有任务都在运行，或作业管理器无法触发。",
            )
            % times,
            (Evidence(Words("Interval", "间隔"), milliseconds(interval)),),
            (
                Advice(
                    "execution.checkpointing.checkpoints-after-tasks-finish",
                    "true",
                    Words("where some tasks have finished", "当部分任务已结束时"),
                    f"{FLINK}dev/datastream/fault-tolerance/checkpointing/",
                ),
            )
            if scene.engine == "flink"
            else (),
            Confidence.POSSIBLE,
            0.5,
        )


def _last(scene: Scene) -> datetime | None:
    """The last moment from which the next trigger is counted."""
    moments = [at for at in (scene.last_triggered_at, scene.run_started_at) if at is not None]
    return max(moments, default=None)


SIGNS = (NotSeen(), HeldUp(), NotTriggered())
