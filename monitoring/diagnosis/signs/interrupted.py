"""The checkpoint did not fail by itself: the job restarted, stopped, or its tasks did not all run."""

from __future__ import annotations

from monitoring.alerts.failure_reason import CheckpointFailureReason, reason_of
from monitoring.diagnosis.finding import Confidence, Finding, Words
from monitoring.diagnosis.scene import Scene
from monitoring.diagnosis.signs.base import Sign

_SAYS = {
    CheckpointFailureReason.FAILOVER_REGION: Words("the job restarted", "作业重启"),
    CheckpointFailureReason.COORDINATOR_SUSPEND: Words("the job stopped or restarted", "作业停止或重启"),
    CheckpointFailureReason.COORDINATOR_SHUTDOWN: Words("the job ended", "作业结束"),
    CheckpointFailureReason.TASKS_NOT_RUNNING: Words("not all tasks were running", "并非所有任务都在运行"),
    CheckpointFailureReason.TASK_FAILURE: Words("a task failed", "有任务失败"),
    CheckpointFailureReason.SUBSUMED: Words("a newer checkpoint completed before it", "更新的检查点先完成"),
}


class Interrupted(Sign):
    name = "interrupted"
    title = Words("Interrupted", "被中断")

    def find(self, scene: Scene) -> Finding | None:
        checkpoint = scene.checkpoint
        reason = reason_of(checkpoint.failure) if checkpoint and checkpoint.has_failed else None
        if checkpoint is None or reason not in _SAYS:
            return None
        says = _SAYS[reason]
        return Finding(
            self.name,
            self.title,
            Words(
                f"Checkpoint {checkpoint.number} did not fail by itself: {says.en} while it was under way.",
                f"检查点 {checkpoint.number} 并非自身失败：进行期间{says.zh}。",
            ),
            confidence=Confidence.CERTAIN,
            weight=-1.0,  # what was thrown says more
        )


SIGNS = (Interrupted(),)
