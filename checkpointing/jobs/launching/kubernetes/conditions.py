"""Facts about a pod in the Kubernetes API's answers, and how the driver in the pod was lost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checkpointing.jobs.launcher import Loss

CONTAINER = "spark-kubernetes-driver"  # Spark gives this name to the driver's container

# Kubernetes retries after other reasons. After these it never starts the pod.
_HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_OUT_OF_MEMORY = "OOMKilled"
_EVICTED = "Evicted"


@dataclass(frozen=True)
class PodFacts:
    """The known facts about a pod. `exit_code` is None until the kubelet has seen the container end.

    `waits_for` says why the pod has not started. `is_being_deleted`: somebody has requested its deletion. `reason` and
    `message` are those of the pod's own end. `memory_limit` is in Kubernetes' notation, such as 2048Mi.
    """

    uid: str
    phase: str
    has_started: bool = False
    exit_code: int | None = None
    exit_reason: str = ""
    is_being_deleted: bool = False
    reason: str = ""
    message: str = ""
    waits_for: str = ""
    waiting_message: str = ""
    memory_limit: str = ""

    @property
    def has_ended(self) -> bool:
        """Return whether nothing of the pod runs or will run: a pod is never started again."""
        return self.phase in ("Succeeded", "Failed") or self.exit_code is not None

    @property
    def is_hopeless(self) -> bool:
        return self.waits_for in _HOPELESS


def facts_of(pod: Mapping[str, Any]) -> PodFacts:
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    containers = [each for each in status.get("containerStatuses") or [] if each.get("name") == CONTAINER]
    state: Mapping[str, Any] = (containers[0].get("state") or {}) if containers else {}
    terminated, waiting = state.get("terminated"), state.get("waiting") or {}
    unscheduled: Mapping[str, Any] = next(
        (
            each
            for each in status.get("conditions") or []
            if each.get("type") == "PodScheduled" and each.get("status") == "False"
        ),
        {},
    )
    waits_for = waiting if waiting.get("reason") else unscheduled
    return PodFacts(
        uid=str(metadata.get("uid", "")),
        phase=str(status.get("phase", "Unknown")),
        has_started=state.get("running") is not None or terminated is not None,
        exit_code=None if terminated is None else int(terminated.get("exitCode", -1)),
        exit_reason=str((terminated or {}).get("reason", "")),
        is_being_deleted=metadata.get("deletionTimestamp") is not None,
        reason=str(status.get("reason", "")),
        message=str(status.get("message", "")),
        waits_for=str(waits_for.get("reason", "")),
        waiting_message=str(waits_for.get("message", "")),
        memory_limit=_memory_limit(pod.get("spec") or {}),
    )


def loss_of(pod: str, facts: PodFacts | None) -> Loss:
    """Return how the driver in `pod` was lost.

    `facts` are the last known ones of a pod that has ended. None: the pod is gone, and this job manager did not see it
    end.
    """
    if facts is None:
        return Loss("PodDeleted", f"The pod {pod} of the driver was deleted.")
    if facts.exit_reason == _OUT_OF_MEMORY:
        limit = f"its limit of {facts.memory_limit}" if facts.memory_limit else "its limit"
        more = "Raise waymark.driver.memory-limit, or let the program take less."
        return Loss("PodOutOfMemory", f"The pod {pod} of the driver used more memory than {limit}. {more}")
    if facts.reason == _EVICTED:
        return Loss("PodEvicted", f"Kubernetes evicted the pod {pod} of the driver{_reason_suffix(facts.message)}")
    if facts.is_being_deleted or not facts.has_ended:
        return Loss("PodDeleted", f"The pod {pod} of the driver was deleted.")
    how = "" if facts.exit_code is None else f" with exit code {facts.exit_code}"
    why = facts.message or facts.reason or ("" if facts.exit_reason in ("Error", "Completed") else facts.exit_reason)
    if why:
        return Loss("DriverLost", f"The pod {pod} of the driver ended{how}{_reason_suffix(why)}")
    return Loss("DriverLost", f"The pod {pod} of the driver ended{how} without saying why.")


def not_started(pod: str, facts: PodFacts, limit_s: float) -> Loss:
    """Return the loss of a driver whose pod does not start, with the pod's own reason."""
    why = ": ".join(filter(None, (facts.waits_for, facts.waiting_message))) or f"its phase is {facts.phase}"
    if facts.is_hopeless:
        return Loss("PodNotStarted", f"The pod {pod} of the driver cannot start{_reason_suffix(why)}")
    return Loss(
        "PodNotStarted", f"The pod {pod} of the driver did not start within {limit_s:.0f} s{_reason_suffix(why)}"
    )


def _memory_limit(spec: Mapping[str, Any]) -> str:
    containers = [each for each in spec.get("containers") or [] if each.get("name") == CONTAINER]
    limits = (containers[0].get("resources") or {}).get("limits") or {} if containers else {}
    return str(limits.get("memory", ""))


def _reason_suffix(why: str) -> str:
    return f": {why.strip().rstrip('.')}." if why.strip() else "."
