"""Something was thrown while the checkpoint was under way, or by the job as a whole: of which family it is.

The families are looked for in their order, the last one being the program's own code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.alerts.failure_reason import PREFIXES, CheckpointFailureReason, reason_of
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding, Words
from monitoring.diagnosis.scene import CheckpointFacts, Raised, Scene
from monitoring.diagnosis.signs.base import FLINK, Sign

# An exception comes a moment before what it aborts, and is told up to a restart later.
BEFORE, AFTER = timedelta(seconds=5), timedelta(seconds=30)
# Consequences of failed checkpoints, not their cause.
_CONSEQUENCE = re.compile(r"Exceeded checkpoint tolerable failure threshold|Checkpoint expired before completing")
# The engine itself says that a task's failure ended the checkpoint.
_OF_A_TASK = frozenset(
    {
        CheckpointFailureReason.DECLINED,
        CheckpointFailureReason.ASYNC_EXCEPTION,
        CheckpointFailureReason.TASK_FAILURE,
        CheckpointFailureReason.TASK_CHECKPOINT_FAILURE,
        CheckpointFailureReason.FAILOVER_REGION,
        CheckpointFailureReason.COORDINATOR_SUSPEND,
        CheckpointFailureReason.TASKS_NOT_RUNNING,
    }
)


@dataclass(frozen=True)
class Family:
    """`pattern` None: whatever none of the others knows."""

    name: str
    title: Words
    says: Words
    pattern: re.Pattern[str] | None
    advice: tuple[Advice, ...] = ()


OUT_OF_MEMORY = Family(
    "out_of_memory",
    Words("Out of memory", "内存不足"),
    Words("A process ran out of memory or was collecting garbage", "进程内存不足或长时间垃圾回收"),
    re.compile(
        r"OutOfMemory|GC overhead limit|\bMetaspace\b|\bMemoryError\b"
        r"|running beyond (?:the )?(?:physical|virtual) memory|OOMKilled|used more memory than its limit",
        re.IGNORECASE,
    ),
    (
        Advice(
            "taskmanager.memory.process.size · spark.driver.memory",
            "",
            Words("more of it, or less state on the heap (RocksDB)", "增加内存，或减少堆上状态（RocksDB）"),
            f"{FLINK}deployment/memory/mem_trouble/",
        ),
    ),
)
LOST_MACHINE = Family(
    "lost_machine",
    Words("Lost machine", "机器丢失"),
    Words("A machine or its process was lost or killed", "机器或其进程丢失或被终止"),
    re.compile(
        r"TaskManager .*(?:lost|no longer reachable|timed out)|remote task ?manager|TaskExecutor.*(?:lost|disconnected)"
        r"|ExecutorLostFailure|Lost executor|ResourceManager.*disconnected|DriverLost|HeartbeatTimeout"
        r"|evicted the pod|The pod \S+ of the driver was deleted"
        r"|sent no heartbeat|heartbeat .*timed out|did not come back"
        r"|exit code 137|through signal 9\b",
        re.IGNORECASE | re.DOTALL,
    ),
    (
        Advice(
            "restart-strategy.type",
            "exponential-delay",
            Words("lets the job come back when the machine does", "机器恢复后作业可自动恢复"),
            f"{FLINK}ops/state/task_failure_recovery/",
        ),
        Advice(
            "taskmanager.memory.process.size · spark.driver.memory",
            "",
            Words("where the system killed it for its memory", "如果因内存被系统终止"),
            f"{FLINK}deployment/memory/mem_trouble/",
        ),
    ),
)
POD_NOT_STARTED = Family(
    "pod_not_started",
    Words("Pod not started", "Pod 未启动"),
    Words("Kubernetes did not start the driver's pod", "Kubernetes 未启动驱动的 Pod"),
    re.compile(r"The pod \S+ of the driver (?:did not|cannot) start"),
    (
        Advice(
            "spark.kubernetes.container.image · spark.driver.memory",
            "",
            Words(
                "an image that the nodes can pull, and a size that fits a node",
                "节点可拉取的镜像，以及节点可容纳的大小",
            ),
            "https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/",
        ),
    ),
)
NO_SLOTS = Family(
    "no_slots",
    Words("Too few task slots", "任务槽不足"),
    Words("The cluster lacks the free task slots that the job needs", "集群没有作业所需的空闲任务槽"),
    re.compile(
        r"NoResourceAvailable|Could not acquire the minimum required resources|job has not accepted any resources",
        re.IGNORECASE,
    ),
    (
        Advice(
            "taskmanager.numberOfTaskSlots",
            "",
            Words(
                "start the TaskManagers that are missing, or give each more slots",
                "启动缺少的 TaskManager，或为每个增加槽位",
            ),
            f"{FLINK}concepts/flink-architecture/#task-slots-and-resources",
        ),
        Advice(
            "jobmanager.scheduler",
            "adaptive",
            Words("lets the job run with the slots that there are", "使作业能以现有槽位运行"),
            f"{FLINK}deployment/elastic_scaling/",
        ),
    ),
)
STORAGE_REFUSES = Family(
    "storage_refuses",
    Words("Checkpoint storage refuses", "检查点存储拒绝写入"),
    Words("The checkpoint storage refused or is full", "检查点存储拒绝写入或已满"),
    re.compile(
        r"No space left|Disk quota exceeded|AccessDenied|NoSuchBucket|Permission denied|Read-only file system"
        r"|Could not (?:flush and close|open) the (?:file|output stream)|AmazonS3Exception|SafeModeException",
        re.IGNORECASE,
    ),
    (
        Advice(
            "execution.checkpointing.dir",
            "",
            Words("room and permission to write there", "该目录需有空间和写权限"),
            f"{FLINK}ops/state/checkpoints/",
        ),
    ),
)
EXTERNAL_TIMEOUT = Family(
    "external_timeout",
    Words("External system", "外部系统"),
    Words("A system that the job talks to did not answer in time or refused", "作业访问的外部系统超时或拒绝连接"),
    re.compile(
        r"\btimed[ -]?out\b|Timeout(?:Exception|Error)|(?:Read|Connect|Socket)Timeout|Connection(?:Refused|Reset|Error)"
        r"|time-?out (?:of|after|expired|exceeded|waiting|while)"
        r"|connection (?:refused|reset|timed out|attempt failed)|UnknownHost|Name or service not known"
        r"|\b50[234]\b.*(?:Unavailable|Gateway)|ConnectException|HTTPStatusError|HTTP Error 5\d\d",
        re.IGNORECASE,
    ),
)
USER_CODE = Family(
    "user_exception",
    Words("Exception in user code", "用户代码异常"),
    Words("The program threw an exception", "程序抛出异常"),
    None,
)
FAMILIES = (OUT_OF_MEMORY, POD_NOT_STARTED, LOST_MACHINE, NO_SLOTS, STORAGE_REFUSES, EXTERNAL_TIMEOUT, USER_CODE)


@dataclass(frozen=True)
class Thrown(Sign):
    family: Family

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.family.name

    @property
    def title(self) -> Words:  # type: ignore[override]
        return self.family.title

    def find(self, scene: Scene) -> Finding | None:
        raised = next((each for each in _of_interest(scene) if family_of(each) is self.family), None)
        return _finding(self.family, scene.checkpoint, raised) if raised else None


def family_of(raised: Raised) -> Family:
    """By its own text, then by the stack trace below it: what wraps the cause says little."""
    for text in (raised.text, raised.stacktrace[:20_000]):
        for family in FAMILIES:
            if family.pattern is not None and family.pattern.search(text):
                return family
    return USER_CODE


def _of_interest(scene: Scene) -> Iterator[Raised]:
    """What was thrown while the checkpoint was under way; without one the job's last exception."""
    checkpoint = scene.checkpoint
    causes = [each for each in scene.raised if not _CONSEQUENCE.search(each.text)]
    if checkpoint is None:
        if causes and not scene.runs:
            yield causes[0]
        return
    if not checkpoint.has_failed:
        return
    begin, end = checkpoint.triggered_at - BEFORE, (checkpoint.ended_at or scene.now) + AFTER
    within = [each for each in causes if begin <= each.at <= end]
    yield from within
    if not within:
        yield from _said_by_the_engine(checkpoint, end)


def _said_by_the_engine(checkpoint: CheckpointFacts, at: datetime) -> Iterator[Raised]:
    """The failure's own message, where it says more than that the checkpoint failed."""
    reason = reason_of(checkpoint.failure)
    more = checkpoint.failure.removeprefix(PREFIXES[reason]).strip(" .:\n") if reason else checkpoint.failure
    said = Raised(at, more[:1000], checkpoint.failure)
    if more and reason is not CheckpointFailureReason.EXPIRED and family_of(said) is not USER_CODE:
        yield said


def _finding(family: Family, checkpoint: CheckpointFacts | None, raised: Raised) -> Finding:
    where = f", in {raised.task}" if raised.task else ""
    where_zh = f"（{raised.task}）" if raised.task else ""
    text = " ".join(raised.text.split())[:300].rstrip(".")
    return Finding(
        family.name,
        family.title,
        Words(f"{family.says.en}{where}: {text}.", f"{family.says.zh}{where_zh}：{text}。"),
        (
            Evidence(Words("Thrown", "抛出时间"), f"{raised.at:%Y-%m-%d %H:%M:%S} UTC"),
            *([Evidence(Words("On", "主机"), raised.host)] if raised.host else []),
        ),
        family.advice,
        _confidence(checkpoint),
        2.0,
    )


def _confidence(checkpoint: CheckpointFacts | None) -> Confidence:
    of_a_task = checkpoint is None or reason_of(checkpoint.failure) in _OF_A_TASK
    return Confidence.CERTAIN if of_a_task else Confidence.LIKELY


SIGNS = tuple(Thrown(family) for family in FAMILIES)
