"""The time-out leaves no room for what a checkpoint of this job usually takes."""

from __future__ import annotations

from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.scene import Scene
from monitoring.diagnosis.signs.base import FLINK, Sign, has_expired, has_normal, length, milliseconds, nice

NEAR = 0.6  # of the time-out that the slowest twentieth may take
ROOM = 3


class TimeoutTooShort(Sign):
    name = "timeout_too_short"
    title = Words("Time-out too short", "超时时间过短")

    def find(self, scene: Scene) -> Finding | None:
        checkpoint, timeout = scene.checkpoint, scene.settings.timeout
        p95 = near_timeout(scene)
        if checkpoint is None or not has_expired(checkpoint) or timeout is None or p95 is None:
            return None
        return Finding(
            self.name,
            self.title,
            Words(
                "Checkpoint {number} expired after {timeout}, and those that complete take up to {p95}: "
                "the time-out leaves no room.",
                "检查点 {number} 在 {timeout}后超时，而能完成的检查点也需要 {p95}：超时时间没有余量。",
            )
            % {"number": checkpoint.number, "timeout": length(timeout), "p95": length(p95)},
            (
                Evidence(Words("Time-out", "超时时间"), milliseconds(timeout)),
                Evidence(Words("Completed ones, p95", "已完成检查点 p95"), milliseconds(p95)),
                Evidence(Words("Acknowledged", "已确认"), f"{checkpoint.acknowledged}/{checkpoint.subtasks}"),
            ),
            advice(p95),
            Confidence.LIKELY,
            p95 / timeout,
        )


def near_timeout(scene: Scene) -> float | None:
    """The p95 of completed checkpoints where it is near the time-out."""
    p95, timeout = scene.normal.duration_p95, scene.settings.timeout
    return p95 if has_normal(scene) and p95 is not None and timeout and p95 >= NEAR * timeout else None


def advice(p95: float) -> tuple[Advice, ...]:
    why = Words("three times what they take", "约为实际耗时的三倍")
    link = f"{FLINK}dev/datastream/fault-tolerance/checkpointing/"
    return (Advice("execution.checkpointing.timeout", nice(ROOM * p95), why, link),)


SIGNS = (TimeoutTooShort(),)
