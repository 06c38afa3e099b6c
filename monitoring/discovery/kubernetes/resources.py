"""Read the resources of the operators: Flink's, and Spark's of Apache and of Kubeflow. Pure functions.

The API may be another server than it should be, so every value is checked. Unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from monitoring.discovery.found import Found, Key, Unreadable, usable_labels
from monitoring.kubernetes.flink_operator import error_of
from monitoring.kubernetes.kinds import (
    EVENT,
    FLINK_DEPLOYMENT,
    FLINK_SESSION_JOB,
    FLINK_SNAPSHOT,
    POD,
    SPARK_OF_APACHE,
    SPARK_OF_KUBEFLOW,
    Json,
    ResourceKind,
    object_in,
    text_in,
)
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.reason import Reason

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# A container with these waits for a person.
_WAITING = frozenset(
    (
        *("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    )
)


def read(kind: ResourceKind, resource: object, address_pattern: str) -> Found | None:
    """Return the resource, or None if it does not matter now. Raise Unreadable."""
    whole = object_in(resource)
    metadata = object_in(whole.get("metadata"))
    key = key_of(kind, whole)
    found = _READERS[kind.key](whole)
    if found is None:
        return None
    rest_url = ""
    if kind is FLINK_DEPLOYMENT:
        rest_url = address_pattern.replace("{name}", key.name).replace("{namespace}", key.namespace)
    return Found(
        key,
        uid=text_in(metadata, "uid")[:64],
        version=text_in(metadata, "resourceVersion")[:200],
        rest_url=rest_url,
        labels=usable_labels(metadata.get("labels")),
        **found,
    )


def key_of(kind: ResourceKind, resource: object) -> Key:
    """Return the key of a resource. Raise Unreadable."""
    metadata = object_in(object_in(resource).get("metadata"))
    name, namespace = text_in(metadata, "name"), text_in(metadata, "namespace")
    if not _NAME.fullmatch(name) or not _NAMESPACE.fullmatch(namespace):
        raise Unreadable(name[:80])
    return Key(kind.key, namespace, name)


def _flink_deployment(whole: Json) -> dict[str, Any]:
    return _flink_job(whole) | {"deployment": text_in(object_in(whole.get("metadata")), "name")}


def _flink_session_job(whole: Json) -> dict[str, Any]:
    return _flink_job(whole) | {"deployment": text_in(object_in(whole.get("spec")), "deploymentName")}


def _flink_job(whole: Json) -> dict[str, Any]:
    status = object_in(whole.get("status"))
    job = object_in(status.get("jobStatus"))
    wanted = object_in(object_in(whole.get("spec")).get("job"))
    state = {
        "lifecycle": text_in(status, "lifecycleState"),
        "manager": text_in(status, "jobManagerDeploymentStatus"),
        "job": text_in(job, "state"),
        "job_id": text_in(job, "jobId"),
        "job_name": text_in(job, "jobName"),
        "started_at": _instant(text_in(job, "startTime")),
        "upgrade_mode": text_in(wanted, "upgradeMode"),
    }
    wrong = [state[name] for name in ("lifecycle", "manager") if state[name] in ("FAILED", "ERROR", "MISSING")]
    return {"state": _filled(state), "problem": _problem(error_of(status), wrong)}


def _instant(milliseconds: str) -> str:
    """Return the operator's time in ISO 8601, or "" if it is not a number of milliseconds since 1970."""
    if not re.fullmatch("[0-9]{1,14}", milliseconds):
        return ""
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC).isoformat()


def _flink_snapshot(whole: Json) -> dict[str, Any]:
    spec, status = object_in(whole.get("spec")), object_in(whole.get("status"))
    job = object_in(spec.get("jobReference"))
    state = {
        "snapshot": text_in(status, "state"),
        "type": "checkpoint" if "checkpoint" in spec else "savepoint",
        "path": text_in(status, "path") or text_in(object_in(spec.get("savepoint")), "path"),
        "job_kind": text_in(job, "kind"),
        "job_resource": text_in(job, "name"),
        "triggered_at": text_in(status, "triggerTimestamp"),
        "completed_at": text_in(status, "resultTimestamp"),
        "kept": "true" if object_in(spec.get("savepoint")).get("disposeOnDelete") is False else "",
    }
    deployment = state["job_resource"] if state["job_kind"] == "FlinkDeployment" else ""
    wrong = [state["snapshot"]] if state["snapshot"] in ("FAILED", "ABANDONED") else []
    return {"state": _filled(state), "deployment": deployment, "problem": _problem(error_of(status), wrong)}


def _spark_of_apache(whole: Json) -> dict[str, Any]:
    current = object_in(object_in(whole.get("status")).get("currentState"))
    return _spark(text_in(current, "currentStateSummary"), text_in(current, "message"))


def _spark_of_kubeflow(whole: Json) -> dict[str, Any]:
    current = object_in(object_in(whole.get("status")).get("applicationState"))
    return _spark(text_in(current, "state"), text_in(current, "errorMessage"))


def _spark(state: str, message: str) -> dict[str, Any]:
    is_wrong = any(word in state.upper() for word in ("FAIL", "EVICT", "TIMEDOUT", "INVALID", "UNKNOWN"))
    return {"state": _filled({"application": state}), "problem": _problem(message, [state]) if is_wrong else None}


def _pod(whole: Json) -> dict[str, Any] | None:
    """Return the trouble of a pod of a Flink deployment, or None if it has none.

    Kubernetes keeps why a container ended in `lastState` when the container runs again.
    """
    labels = object_in(object_in(whole.get("metadata")).get("labels"))
    status = object_in(whole.get("status"))
    found = next(filter(None, (_eviction(status), *map(_trouble, _containers(status)), _unschedulable(status))), None)
    if found is None:
        return None
    reason, message = found
    state = {"pod": reason, "component": text_in(labels, "component")}
    shown = (
        DiscoveryReason.POD_TROUBLE(reason=reason, message=message) if message else DiscoveryReason.POD(reason=reason)
    )
    return {"state": _filled(state), "deployment": text_in(labels, "app"), "problem": shown}


def _containers(status: Json) -> Iterator[Json]:
    for name in ("initContainerStatuses", "containerStatuses"):
        listed = status.get(name)
        yield from map(object_in, listed if isinstance(listed, list) else ())


def _eviction(status: Json) -> tuple[str, str] | None:
    reason = text_in(status, "reason")
    return (reason, text_in(status, "message")) if text_in(status, "phase") == "Failed" and reason else None


def _trouble(container: Json) -> tuple[str, str] | None:
    for when in ("state", "lastState"):
        ended = object_in(object_in(container.get(when)).get("terminated"))
        if text_in(ended, "reason") == "OOMKilled":
            return "OOMKilled", ""
    waiting = object_in(object_in(container.get("state")).get("waiting"))
    reason = text_in(waiting, "reason")
    return (reason, text_in(waiting, "message")) if reason in _WAITING else None


def _unschedulable(status: Json) -> tuple[str, str] | None:
    conditions = status.get("conditions")
    for each in map(object_in, conditions if isinstance(conditions, list) else ()):
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return text_in(each, "reason") or "Unschedulable", text_in(each, "message")
    return None


def _event(whole: Json) -> dict[str, Any]:
    """Return a warning about a deployment or a session job. It is shown, but it is no lasting problem."""
    of = object_in(whole.get("involvedObject"))
    is_deployment = text_in(of, "kind") == FLINK_DEPLOYMENT.name
    state = {
        "event": text_in(whole, "reason"),
        "message": text_in(whole, "message", 500),
        "session_job": "" if is_deployment else text_in(of, "name"),
    }
    return {"state": _filled(state), "deployment": text_in(of, "name") if is_deployment else ""}


def _problem(error: str, states: list[str]) -> Reason | None:
    if error:
        return DiscoveryReason.OPERATOR_ERROR(error=error)
    return DiscoveryReason.OPERATOR_STATE(state=states[0]) if states else None


def _filled(state: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in state.items() if value}


_READERS: Mapping[str, Callable[[Json], dict[str, Any] | None]] = {
    FLINK_DEPLOYMENT.key: _flink_deployment,
    FLINK_SESSION_JOB.key: _flink_session_job,
    FLINK_SNAPSHOT.key: _flink_snapshot,
    SPARK_OF_APACHE.key: _spark_of_apache,
    SPARK_OF_KUBEFLOW.key: _spark_of_kubeflow,
    POD.key: _pod,
    EVENT.key: _event,
}
