"""Classify the exception that was raised during a checkpoint, or by the job as a whole, into a family.

The families are tried in their order. The last one is the program's own code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import PREFIXES, CheckpointFailureReason, reason_of
from monitoring.diagnosis.diagnosis_facts import CheckpointFacts, DiagnosisFacts, Raised
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding
from monitoring.diagnosis.signs.base import FLINK, Figure, Sign
from monitoring.reasons.reason import Reason, ReasonCode

# An exception may occur shortly before its checkpoint, and the engine reports it up to one restart later.
BEFORE, AFTER = timedelta(seconds=5), timedelta(seconds=30)
# Consequences of failed checkpoints, not their cause.
_CONSEQUENCE = re.compile(r"Exceeded checkpoint tolerable failure threshold|Checkpoint expired before completing")
# With these reasons the engine reports that a task's failure ended the checkpoint.
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


class ExceptionReason(ReasonCode):
    OUT_OF_MEMORY = "diagnosis.out-of-memory", _("Out of memory")
    RAN_OUT_OF_MEMORY = "diagnosis.ran-out-of-memory", _("A process ran out of memory or was collecting garbage")
    MORE_MEMORY = "diagnosis.more-memory", _("more memory, or less state on the heap (RocksDB)")

    LOST_MACHINE = "diagnosis.lost-machine", _("Lost machine")
    MACHINE_GONE = "diagnosis.machine-gone", _("A machine or its process was lost or killed")
    COMES_BACK = "diagnosis.comes-back", _("lets the job recover when the machine is back")
    KILLED_FOR_MEMORY = "diagnosis.killed-for-memory", _("if the system killed the process for its memory use")

    POD_NOT_STARTED = "diagnosis.pod-not-started", _("Pod not started")
    NO_DRIVER_POD = "diagnosis.no-driver-pod", _("Kubernetes did not start the driver's pod")
    FITTING_POD = "diagnosis.fitting-pod", _("an image that the nodes can pull, and a size that fits a node")

    NO_SLOTS = "diagnosis.no-slots", _("Too few task slots")
    LACKS_SLOTS = "diagnosis.lacks-slots", _("The cluster lacks the free task slots that the job needs")
    MORE_SLOTS = "diagnosis.more-slots", _("start the TaskManagers that are missing, or give each more slots")
    ADAPTIVE_SCHEDULER = "diagnosis.adaptive-scheduler", _("lets the job run with the available slots")

    STORAGE_REFUSES = "diagnosis.storage-refuses", _("Checkpoint storage rejects writes")
    STORAGE_REFUSED = "diagnosis.storage-refused", _("The checkpoint storage rejected a request or is full")
    ROOM_TO_WRITE = "diagnosis.room-to-write", _("free space and write permission there")

    EXTERNAL_TIMEOUT = "diagnosis.external-timeout", _("External system")
    NO_ANSWER = "diagnosis.no-answer", _("An external system did not respond in time or rejected a request")

    USER_EXCEPTION = "diagnosis.user-exception", _("Exception in user code")
    PROGRAM_THREW = "diagnosis.program-threw", _("The program threw an exception")

    THROWN = "diagnosis.thrown", _("{what}: {text}.")
    THROWN_IN_TASK = "diagnosis.thrown-in-task", _("{what}, in {task}: {text}.")
    THROWN_AT = "diagnosis.thrown-at", _("Thrown")
    HOST = "diagnosis.host", _("On")


@dataclass(frozen=True)
class Family:
    """A family of exceptions. `pattern` is None for the family of all exceptions that match no other."""

    name: str
    title: Reason
    says: Reason
    pattern: re.Pattern[str] | None
    advice: tuple[Advice, ...] = ()


OUT_OF_MEMORY = Family(
    "out_of_memory",
    ExceptionReason.OUT_OF_MEMORY(),
    ExceptionReason.RAN_OUT_OF_MEMORY(),
    re.compile(
        r"OutOfMemory|GC overhead limit|\bMetaspace\b|\bMemoryError\b"
        r"|running beyond (?:the )?(?:physical|virtual) memory|OOMKilled|used more memory than its limit",
        re.IGNORECASE,
    ),
    (
        Advice(
            "taskmanager.memory.process.size · spark.driver.memory",
            "",
            ExceptionReason.MORE_MEMORY(),
            f"{FLINK}deployment/memory/mem_trouble/",
        ),
    ),
)
LOST_MACHINE = Family(
    "lost_machine",
    ExceptionReason.LOST_MACHINE(),
    ExceptionReason.MACHINE_GONE(),
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
            ExceptionReason.COMES_BACK(),
            f"{FLINK}ops/state/task_failure_recovery/",
        ),
        Advice(
            "taskmanager.memory.process.size · spark.driver.memory",
            "",
            ExceptionReason.KILLED_FOR_MEMORY(),
            f"{FLINK}deployment/memory/mem_trouble/",
        ),
    ),
)
POD_NOT_STARTED = Family(
    "pod_not_started",
    ExceptionReason.POD_NOT_STARTED(),
    ExceptionReason.NO_DRIVER_POD(),
    re.compile(r"The pod \S+ of the driver (?:did not|cannot) start"),
    (
        Advice(
            "spark.kubernetes.container.image · spark.driver.memory",
            "",
            ExceptionReason.FITTING_POD(),
            "https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/",
        ),
    ),
)
NO_SLOTS = Family(
    "no_slots",
    ExceptionReason.NO_SLOTS(),
    ExceptionReason.LACKS_SLOTS(),
    re.compile(
        r"NoResourceAvailable|Could not acquire the minimum required resources|job has not accepted any resources",
        re.IGNORECASE,
    ),
    (
        Advice(
            "taskmanager.numberOfTaskSlots",
            "",
            ExceptionReason.MORE_SLOTS(),
            f"{FLINK}concepts/flink-architecture/#task-slots-and-resources",
        ),
        Advice(
            "jobmanager.scheduler",
            "adaptive",
            ExceptionReason.ADAPTIVE_SCHEDULER(),
            f"{FLINK}deployment/elastic_scaling/",
        ),
    ),
)
STORAGE_REFUSES = Family(
    "storage_refuses",
    ExceptionReason.STORAGE_REFUSES(),
    ExceptionReason.STORAGE_REFUSED(),
    re.compile(
        r"No space left|Disk quota exceeded|AccessDenied|NoSuchBucket|Permission denied|Read-only file system"
        r"|Could not (?:flush and close|open) the (?:file|output stream)|AmazonS3Exception|SafeModeException",
        re.IGNORECASE,
    ),
    (
        Advice(
            "execution.checkpointing.dir",
            "",
            ExceptionReason.ROOM_TO_WRITE(),
            f"{FLINK}ops/state/checkpoints/",
        ),
    ),
)
EXTERNAL_TIMEOUT = Family(
    "external_timeout",
    ExceptionReason.EXTERNAL_TIMEOUT(),
    ExceptionReason.NO_ANSWER(),
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
    ExceptionReason.USER_EXCEPTION(),
    ExceptionReason.PROGRAM_THREW(),
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
    def title(self) -> Reason:  # type: ignore[override]
        return self.family.title

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        raised = next((each for each in _relevant_exceptions(facts) if family_of(each) is self.family), None)
        return _finding(self.family, facts.checkpoint, raised) if raised else None


def family_of(raised: Raised) -> Family:
    """Return the family that matches the exception's text (with its root cause), or else its stack trace."""
    for text in (raised.text, raised.stacktrace[:20_000]):
        for family in FAMILIES:
            if family.pattern is not None and family.pattern.search(text):
                return family
    return USER_CODE


def _relevant_exceptions(facts: DiagnosisFacts) -> Iterator[Raised]:
    """Return the exceptions during the checkpoint, or without a checkpoint the job's last exception."""
    checkpoint = facts.checkpoint
    causes = [each for each in facts.raised if not _CONSEQUENCE.search(each.text)]
    if checkpoint is None:
        if causes and not facts.runs:
            yield causes[0]
        return
    if not checkpoint.has_failed:
        return
    begin, end = checkpoint.triggered_at - BEFORE, (checkpoint.ended_at or facts.now) + AFTER
    within = [each for each in causes if begin <= each.at <= end]
    yield from within
    if not within:
        yield from _is_named_by_engine(checkpoint, end)


def _is_named_by_engine(checkpoint: CheckpointFacts, at: datetime) -> Iterator[Raised]:
    """Return the failure message as an exception, if it says more than that the checkpoint failed."""
    reason = reason_of(checkpoint.failure)
    more = checkpoint.failure.removeprefix(PREFIXES[reason]).strip(" .:\n") if reason else checkpoint.failure
    said = Raised(at, more[:1000], checkpoint.failure)
    if more and reason is not CheckpointFailureReason.EXPIRED and family_of(said) is not USER_CODE:
        yield said


def _finding(family: Family, checkpoint: CheckpointFacts | None, raised: Raised) -> Finding:
    said = {"what": family.says, "text": " ".join(raised.text.split())[:300].rstrip(".")}
    return Finding(
        family.name,
        family.title,
        ExceptionReason.THROWN_IN_TASK(**said, task=raised.task) if raised.task else ExceptionReason.THROWN(**said),
        (
            Evidence(ExceptionReason.THROWN_AT(), Figure.TIME(at=raised.at)),
            *([Evidence(ExceptionReason.HOST(), raised.host)] if raised.host else []),
        ),
        family.advice,
        _confidence(checkpoint),
        2.0,
    )


def _confidence(checkpoint: CheckpointFacts | None) -> Confidence:
    of_a_task = checkpoint is None or reason_of(checkpoint.failure) in _OF_A_TASK
    return Confidence.CERTAIN if of_a_task else Confidence.LIKELY


SIGNS = tuple(Thrown(family) for family in FAMILIES)
