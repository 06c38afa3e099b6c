"""Read the resources of the operators: Flink's, and Spark's of Apache and of Kubeflow. Pure functions.

The API may be another server than it should be, so every value is checked. Unknown fields are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from monitoring.discovery.found import Found, Key, Unreadable, usable_labels
from monitoring.engine.causes import human
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.reason import Reason

Json = Mapping[str, Any]

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# A container with these waits for a person.
_WAITING = frozenset(
    (
        *("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    )
)
_LONGEST = 1000


@dataclass(frozen=True)
class ResourceKind:
    """A kind of resources. `group`: "" for those of Kubernetes itself. `name`: as people know it.

    `read` returns the values of `Found`, or None for a resource that does not matter now. `selector`: None if the
    source's label selector applies to the kind.
    """

    group: str
    version: str
    plural: str
    name: str
    read: Callable[[Json], dict[str, Any] | None]
    selector: str | None = None

    @property
    def key(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str) -> str:
        api = f"/apis/{self.group}" if self.group else "/api"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{api}/{self.version}{within}/{self.plural}"


def read(kind: ResourceKind, resource: object, address_pattern: str) -> Found | None:
    """Return the resource, or None if it does not matter now. Raise Unreadable."""
    whole = _object(resource)
    metadata = _object(whole.get("metadata"))
    key = key_of(kind, whole)
    found = kind.read(whole)
    if found is None:
        return None
    rest_url = ""
    if kind is FLINK_DEPLOYMENT:
        rest_url = address_pattern.replace("{name}", key.name).replace("{namespace}", key.namespace)
    return Found(
        key,
        uid=_text(metadata, "uid")[:64],
        version=_text(metadata, "resourceVersion")[:200],
        rest_url=rest_url,
        labels=usable_labels(metadata.get("labels")),
        **found,
    )


def key_of(kind: ResourceKind, resource: object) -> Key:
    """Return the key of a resource. Raise Unreadable."""
    metadata = _object(_object(resource).get("metadata"))
    name, namespace = _text(metadata, "name"), _text(metadata, "namespace")
    if not _NAME.fullmatch(name) or not _NAMESPACE.fullmatch(namespace):
        raise Unreadable(name[:80])
    return Key(kind.key, namespace, name)


def version_of(resource: object) -> str:
    """Return the resourceVersion of a resource, a list or a bookmark, "" if it has none."""
    return _text(_object(_object(resource).get("metadata")), "resourceVersion")[:200]


def _flink_deployment(whole: Json) -> dict[str, Any]:
    return _flink_job(whole) | {"deployment": _text(_object(whole.get("metadata")), "name")}


def _flink_session_job(whole: Json) -> dict[str, Any]:
    return _flink_job(whole) | {"deployment": _text(_object(whole.get("spec")), "deploymentName")}


def _flink_job(whole: Json) -> dict[str, Any]:
    status = _object(whole.get("status"))
    job = _object(status.get("jobStatus"))
    state = {
        "lifecycle": _text(status, "lifecycleState"),
        "manager": _text(status, "jobManagerDeploymentStatus"),
        "job": _text(job, "state"),
        "job_id": _text(job, "jobId"),
        "job_name": _text(job, "jobName"),
    }
    wrong = [state[name] for name in ("lifecycle", "manager") if state[name] in ("FAILED", "ERROR", "MISSING")]
    return {"state": _filled(state), "problem": _problem(_error(status), wrong)}


def _flink_snapshot(whole: Json) -> dict[str, Any]:
    spec, status = _object(whole.get("spec")), _object(whole.get("status"))
    job = _object(spec.get("jobReference"))
    state = {
        "snapshot": _text(status, "state"),
        "type": "checkpoint" if "checkpoint" in spec else "savepoint",
        "path": _text(status, "path") or _text(_object(spec.get("savepoint")), "path"),
        "job_kind": _text(job, "kind"),
        "job_resource": _text(job, "name"),
        "triggered_at": _text(status, "triggerTimestamp"),
        "completed_at": _text(status, "resultTimestamp"),
        "kept": "true" if _object(spec.get("savepoint")).get("disposeOnDelete") is False else "",
    }
    deployment = state["job_resource"] if state["job_kind"] == "FlinkDeployment" else ""
    wrong = [state["snapshot"]] if state["snapshot"] in ("FAILED", "ABANDONED") else []
    return {"state": _filled(state), "deployment": deployment, "problem": _problem(_error(status), wrong)}


def _spark_of_apache(whole: Json) -> dict[str, Any]:
    current = _object(_object(whole.get("status")).get("currentState"))
    return _spark(_text(current, "currentStateSummary"), _text(current, "message"))


def _spark_of_kubeflow(whole: Json) -> dict[str, Any]:
    current = _object(_object(whole.get("status")).get("applicationState"))
    return _spark(_text(current, "state"), _text(current, "errorMessage"))


def _spark(state: str, message: str) -> dict[str, Any]:
    is_wrong = any(word in state.upper() for word in ("FAIL", "EVICT", "TIMEDOUT", "INVALID", "UNKNOWN"))
    return {"state": _filled({"application": state}), "problem": _problem(message, [state]) if is_wrong else None}


def _pod(whole: Json) -> dict[str, Any] | None:
    """Return the trouble of a pod of a Flink deployment, or None if it has none.

    Kubernetes keeps why a container ended in `lastState` when the container runs again.
    """
    labels = _object(_object(whole.get("metadata")).get("labels"))
    status = _object(whole.get("status"))
    found = next(filter(None, (_eviction(status), *map(_trouble, _containers(status)), _unschedulable(status))), None)
    if found is None:
        return None
    reason, message = found
    state = {"pod": reason, "component": _text(labels, "component")}
    shown = (
        DiscoveryReason.POD_TROUBLE(reason=reason, message=message) if message else DiscoveryReason.POD(reason=reason)
    )
    return {"state": _filled(state), "deployment": _text(labels, "app"), "problem": shown}


def _containers(status: Json) -> Iterator[Json]:
    for name in ("initContainerStatuses", "containerStatuses"):
        listed = status.get(name)
        yield from map(_object, listed if isinstance(listed, list) else ())


def _eviction(status: Json) -> tuple[str, str] | None:
    reason = _text(status, "reason")
    return (reason, _text(status, "message")) if _text(status, "phase") == "Failed" and reason else None


def _trouble(container: Json) -> tuple[str, str] | None:
    for when in ("state", "lastState"):
        ended = _object(_object(container.get(when)).get("terminated"))
        if _text(ended, "reason") == "OOMKilled":
            return "OOMKilled", ""
    waiting = _object(_object(container.get("state")).get("waiting"))
    reason = _text(waiting, "reason")
    return (reason, _text(waiting, "message")) if reason in _WAITING else None


def _unschedulable(status: Json) -> tuple[str, str] | None:
    conditions = status.get("conditions")
    for each in map(_object, conditions if isinstance(conditions, list) else ()):
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return _text(each, "reason") or "Unschedulable", _text(each, "message")
    return None


def _problem(error: str, states: list[str]) -> Reason | None:
    if error:
        return DiscoveryReason.OPERATOR_ERROR(error=error)
    return DiscoveryReason.OPERATOR_STATE(state=states[0]) if states else None


def _error(status: Json) -> str:
    """Return the message in `status.error`, which is a text or JSON in a text."""
    text = _text(status, "error")
    try:
        parsed = json.loads(text) if text.startswith("{") else {}
    except (ValueError, RecursionError):
        parsed = {}
    return human(_text(_object(parsed), "message") or text)


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _text(entry: Json, name: str) -> str:
    value = entry.get(name)
    return value.replace("\0", "")[:_LONGEST] if isinstance(value, str) else ""


def _filled(state: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in state.items() if value}


_FLINK = ("flink.apache.org", "v1beta1")
FLINK_DEPLOYMENT = ResourceKind(*_FLINK, "flinkdeployments", "FlinkDeployment", _flink_deployment)
FLINK_SESSION_JOB = ResourceKind(*_FLINK, "flinksessionjobs", "FlinkSessionJob", _flink_session_job)
FLINK_SNAPSHOT = ResourceKind(*_FLINK, "flinkstatesnapshots", "FlinkStateSnapshot", _flink_snapshot, selector="")
SPARK_OF_APACHE = ResourceKind(
    "spark.apache.org", "v1", "sparkapplications", "SparkApplication (Apache)", _spark_of_apache
)
SPARK_OF_KUBEFLOW = ResourceKind(
    "sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication (Kubeflow)", _spark_of_kubeflow
)
# Flink gives its pods these labels, with the deployment's name as `app`.
POD = ResourceKind("", "v1", "pods", "Pod", _pod, selector="app,component in (jobmanager,taskmanager)")
KINDS = (FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_SNAPSHOT, SPARK_OF_APACHE, SPARK_OF_KUBEFLOW, POD)
