"""What Waymark asks of the Flink Kubernetes operator: to redeploy a job, to restart it, and to take its savepoints.

Waymark changes only the resource of the job, and the operator does the rest. Each request may be repeated: a nonce or a
name identifies it, so that the operator carries it out once.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

from monitoring.engine.causes import human
from monitoring.engine.errors import EngineError
from monitoring.engine.operations import Done, Failed, InProgress
from monitoring.kubernetes.api import Conflict, KubernetesApi
from monitoring.kubernetes.job_program import ProgramChange, changed_otherwise, patch_of
from monitoring.kubernetes.job_resources import JobResource
from monitoring.kubernetes.kinds import FLINK_SNAPSHOT, Json, object_in, text_in, version_of
from monitoring.reasons.discoveries import DiscoveryReason

# The annotation with the nonce of Waymark's last request to redeploy or restart the job.
NONCE = "waymark/restart"
STATELESS = "stateless"
_OURS = "waymark-"


class NotOurs(EngineError):
    """The resource is no longer the one that the request is for, or somebody else has restarted its job since."""


@dataclass(frozen=True)
class Redeployment:
    """A request to replace the job.

    `nonce`: identifies the request, and is larger than that of an earlier one. `restore_path`: "" if the operator
    restarts the job with its latest state. `replaces`: Flink's ID of the job that may be replaced. `first_nonce`: the
    first request of the same attempt, or of the attempt that this one undoes. `change`: of the program, if wanted.
    """

    nonce: int
    first_nonce: int
    restore_path: str
    replaces: str
    change: ProgramChange | None = None


@dataclass(frozen=True)
class Redeployed:
    """What the operator has done. `is_deployed`: it has carried out the request. `error`: what it reports, or "".

    `is_rolled_back`: it has returned to the last specification with which the job was stable.
    """

    is_deployed: bool
    job_id: str
    job_state: str
    error: str
    is_rolled_back: bool = False


async def redeploy(api: KubernetesApi, target: JobResource, wanted: Redeployment) -> Redeployed:
    """Request the redeployment unless it was requested before, and return how far the operator is.

    Raises:
        NotOurs: nothing was requested.
        Conflict: the resource was changed at the same moment. Nothing was requested.
        EngineError: no answer, or a refusal. After Unreachable the request may have been received.
    """
    resource = await api.read(target.resource_kind, target.namespace, target.name)
    if _nonce_of(resource) != wanted.nonce:
        _require_replaceable(resource, target, wanted)
        resource = await api.change(target.resource_kind, target.namespace, target.name, _patch(resource, wanted))
    return _progress(resource, wanted)


def _patch(resource: Json, wanted: Redeployment) -> Json:
    """Return the change. Kubernetes refuses it if the resource is no longer as it was read."""
    if wanted.restore_path:
        spec: Json = {
            "job": {
                "state": "running",
                "initialSavepointPath": wanted.restore_path,
                "savepointRedeployNonce": wanted.nonce,
            }
        }
    else:
        spec = {"restartNonce": wanted.nonce}
    if wanted.change is not None:
        program = patch_of(wanted.change)
        spec = {**spec, **program, "job": {**object_in(spec.get("job")), **object_in(program.get("job"))}}
    metadata = {"resourceVersion": version_of(resource), "annotations": {NONCE: str(wanted.nonce)}}
    return {"metadata": metadata, "spec": spec}


def _require_replaceable(resource: Json, target: JobResource, wanted: Redeployment) -> None:
    metadata, job = object_in(resource.get("metadata")), object_in(object_in(resource.get("spec")).get("job"))
    if text_in(metadata, "uid") != target.uid:
        raise NotOurs(DiscoveryReason.CREATED_AGAIN(resource=str(target)))
    if _nonce_of(resource) > wanted.nonce:
        raise NotOurs(DiscoveryReason.RESTARTED_LATER(resource=str(target)))
    job_id = text_in(object_in(object_in(resource.get("status")).get("jobStatus")), "jobId")
    is_own = _nonce_of(resource) >= wanted.first_nonce
    if job_id != wanted.replaces and not is_own:
        raise NotOurs(DiscoveryReason.OTHER_JOB(resource=str(target), job=job_id or "–"))
    if not wanted.restore_path and text_in(job, "upgradeMode") in ("", STATELESS):
        raise NotOurs(DiscoveryReason.UPGRADE_WITHOUT_STATE(resource=str(target)))
    if wanted.change is not None and (fields := list(changed_otherwise(resource, wanted.change))):
        raise NotOurs(DiscoveryReason.PROGRAM_CHANGED(resource=str(target), fields=fields))


def _nonce_of(resource: Json) -> int:
    annotations = object_in(object_in(resource.get("metadata")).get("annotations"))
    text = text_in(annotations, NONCE)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _progress(resource: Json, wanted: Redeployment) -> Redeployed:
    status = object_in(resource.get("status"))
    job, reconciliation = object_in(status.get("jobStatus")), object_in(status.get("reconciliationStatus"))
    state = text_in(reconciliation, "state") if _is_recorded(reconciliation, wanted) else ""
    return Redeployed(
        state == "DEPLOYED", text_in(job, "jobId"), text_in(job, "state"), error_of(status), state == "ROLLED_BACK"
    )


def _is_recorded(reconciliation: Json, wanted: Redeployment) -> bool:
    """Return whether the operator has recorded the specification with the nonce."""
    try:
        spec = object_in(json.loads(text_in(reconciliation, "lastReconciledSpec", 1_000_000) or "{}"))
    except (ValueError, RecursionError):
        return False
    nonce = (
        object_in(spec.get("job")).get("savepointRedeployNonce") if wanted.restore_path else spec.get("restartNonce")
    )
    return bool(nonce == wanted.nonce)


async def trigger_savepoint(api: KubernetesApi, target: JobResource, trigger_id: str) -> None:
    """Create the FlinkStateSnapshot for the request, unless it exists."""
    reference = {"kind": target.resource_kind.name, "name": target.name}
    # Waymark deletes the files of its savepoints itself, by its retention. So they survive their resource.
    spec = {"jobReference": reference, "savepoint": {"disposeOnDelete": False}, "backoffLimit": 0}
    metadata = {"name": snapshot_name(trigger_id), "namespace": target.namespace}
    api_version = f"{FLINK_SNAPSHOT.group}/{FLINK_SNAPSHOT.version}"
    resource = {"apiVersion": api_version, "kind": FLINK_SNAPSHOT.name, "metadata": metadata, "spec": spec}
    with contextlib.suppress(Conflict):  # an earlier request whose answer was lost
        await api.create(FLINK_SNAPSHOT, target.namespace, resource)


async def savepoint_status(api: KubernetesApi, target: JobResource, trigger_id: str) -> InProgress | Done[str] | Failed:
    """Return how far the savepoint is. The result of Done is its path. Raise NotFound if there is no such resource."""
    resource = await api.read(FLINK_SNAPSHOT, target.namespace, snapshot_name(trigger_id))
    status = object_in(resource.get("status"))
    match text_in(status, "state"):
        case "COMPLETED" if path := text_in(status, "path"):
            return Done(path)
        case "COMPLETED" | "FAILED" | "ABANDONED" as state:
            error = error_of(status)
            code, says = DiscoveryReason.OPERATOR_ERROR, DiscoveryReason.OPERATOR_STATE
            reason = code(error=error) if error else says(state=state)
            return Failed(str(reason), refusal=reason)
    return InProgress()


async def forget_savepoint(api: KubernetesApi, target: JobResource, trigger_id: str) -> None:
    """Delete the resource of a savepoint whose files are deleted. Raise NotFound if it does not exist."""
    await api.delete(FLINK_SNAPSHOT, target.namespace, snapshot_name(trigger_id))


def snapshot_name(trigger_id: str) -> str:
    return f"{_OURS}{trigger_id}"


def trigger_id_in(name: str) -> str:
    """Return the trigger ID in the name of a FlinkStateSnapshot, another text if Waymark has not created it."""
    return name.removeprefix(_OURS)


def error_of(status: Json) -> str:
    """Return the message in `status.error`, which is a text or JSON in a text, "" if there is none."""
    text = text_in(status, "error")
    try:
        parsed = json.loads(text) if text.startswith("{") else {}
    except (ValueError, RecursionError):
        parsed = {}
    return human(text_in(object_in(parsed), "message") or text)
