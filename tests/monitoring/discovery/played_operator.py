"""A simulated Flink Kubernetes operator, written from the documentation of its custom resources.

It reconciles the resources of a simulated Kubernetes API step by step, and runs their jobs in a simulated job manager.
A changed savepointRedeployNonce replaces the job from initialSavepointPath in every state of the job. A changed
restartNonce restarts it as upgradeMode says. A FlinkStateSnapshot takes a savepoint. A nonce counts only if it differs
from that of the last specification that was deployed, and is not null.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.monitoring.discovery.played_kubernetes import FLINK, SESSION_JOB, SNAPSHOT, PlayedKubernetes
from tests.monitoring.fake_job_manager import FakeJobManager

Json = dict[str, Any]


@dataclass
class PlayedOperator:
    """`deployments`: the snapshot of each deployment of a job, "" for an empty start, in order.

    `records_early`: the new specification is recorded before the deployment (as since FLINK-40470), or else after it.
    `fails`: messages of deployments that fail before one succeeds. `loses`: snapshots that no job can be restored from.
    `broken_images`: their jobs fail at once. `rolls_back`: then the last stable specification is deployed again.
    `missing_images`: they cannot be pulled.
    """

    kubernetes: PlayedKubernetes
    jobs: FakeJobManager
    records_early: bool = True
    deployments: list[str] = field(default_factory=list)
    fails: list[str] = field(default_factory=list)
    loses: set[str] = field(default_factory=set)
    broken_images: set[str] = field(default_factory=set)
    missing_images: set[str] = field(default_factory=set)
    rolls_back: bool = False
    snapshots: int = 0
    snapshot_error: str = ""

    def create(self, name: str, upgrade_mode: str = "savepoint", job_id: str = "", kind: str = FLINK) -> str:
        """Create a FlinkDeployment or FlinkSessionJob whose job runs, and return Flink's ID of the job."""
        program = {"jarURI": "local:///opt/orders.jar", "args": ["--topic", "a"], "parallelism": 2}
        spec: Json = {"job": {"upgradeMode": upgrade_mode, "state": "running", **program}}
        spec |= {"deploymentName": "session"} if kind == SESSION_JOB else {"image": "orders:1"}
        job_id = job_id or uuid.uuid4().hex
        self.kubernetes.put(name, kind, spec=spec, status=self._status(spec, name, job_id, "RUNNING"))
        if job_id not in self.jobs.jobs:
            self.jobs.add(job_id, name)
        return job_id

    def reconcile(self) -> None:
        """Do the next step for each resource."""
        with self.kubernetes.changed:
            objects = list(self.kubernetes.objects.items())
            for (kind, _namespace, name), resource in objects:
                if kind in (FLINK, SESSION_JOB) and "job" in resource["spec"]:
                    self._reconcile_job(kind, name, resource)
                elif kind == SNAPSHOT:
                    self._reconcile_snapshot(name, resource)

    def _reconcile_job(self, kind: str, name: str, resource: Json) -> None:
        spec, status = resource["spec"], resource["status"]
        reconciled = status["reconciliationStatus"]
        last = json.loads(reconciled["lastReconciledSpec"])
        job_id = status["jobStatus"]["jobId"]
        if reconciled["state"] == "UPGRADING":
            self._deploy(kind, name, spec, status)
        elif _is_new(spec["job"].get("savepointRedeployNonce"), last["job"].get("savepointRedeployNonce")):
            self._replace(kind, name, spec, last, status, spec["job"]["initialSavepointPath"], "CANCELED")
        elif _is_new(spec.get("restartNonce"), last.get("restartNonce")):
            state = "" if spec["job"]["upgradeMode"] == "stateless" else f"file:/upgrade/{job_id[:8]}"
            self._replace(kind, name, spec, last, status, state, "FINISHED" if state else "CANCELED")
        else:
            state = self.jobs.jobs[job_id].state
            self.kubernetes.put(name, kind, status=status | {"jobStatus": status["jobStatus"] | {"state": state}})

    def _replace(self, kind: str, name: str, spec: Json, last: Json, status: Json, path: str, old_state: str) -> None:
        old = self.jobs.jobs[status["jobStatus"]["jobId"]]
        old.state = old_state if old.state == "RUNNING" else old.state
        recorded = spec if self.records_early else last
        reconciled = {"state": "UPGRADING", "lastReconciledSpec": json.dumps(recorded), "next": path}
        job = status["jobStatus"] | {"state": "RECONCILING"}
        self.kubernetes.put(name, kind, status=status | {"reconciliationStatus": reconciled, "jobStatus": job})

    def _deploy(self, kind: str, name: str, spec: Json, status: Json) -> None:
        path = status["reconciliationStatus"]["next"]
        if self.fails or spec.get("image") in self.missing_images:
            message = self.fails.pop(0) if self.fails else "ImagePullBackOff"
            self.kubernetes.put(name, kind, status=status | {"error": json.dumps({"message": message})})
            return
        job_id = uuid.uuid4().hex
        is_broken = spec.get("image") in self.broken_images
        state = "FAILED" if path in self.loses or is_broken else "RUNNING"
        self.jobs.add(job_id, name, state).savepoint_path = path
        self.deployments.append(path)
        if is_broken and self.rolls_back:
            job_id = uuid.uuid4().hex
            self.jobs.add(job_id, name).savepoint_path = path
            rolled = self._status(spec, name, job_id, "RUNNING", "The deployment failed")
            rolled["reconciliationStatus"]["state"] = "ROLLED_BACK"
            self.kubernetes.put(name, kind, status=rolled)
            return
        error = (
            f"java.io.FileNotFoundException: Cannot find checkpoint or savepoint {path}" if path in self.loses else ""
        )
        self.kubernetes.put(name, kind, status=self._status(spec, name, job_id, state, error))

    @staticmethod
    def _status(spec: Json, name: str, job_id: str, state: str, error: str = "") -> Json:
        return {
            "lifecycleState": "STABLE",
            "jobStatus": {"jobId": job_id, "jobName": name, "state": state},
            "reconciliationStatus": {"state": "DEPLOYED", "lastReconciledSpec": json.dumps(spec)},
            **({"error": error} if error else {}),
        }

    def _reconcile_snapshot(self, name: str, resource: Json) -> None:
        status = resource.get("status", {})
        if status.get("state") in ("COMPLETED", "FAILED", "ABANDONED"):
            return
        if not status:
            self.snapshots += 1
            self.kubernetes.put(name, SNAPSHOT, status={"state": "IN_PROGRESS"})
        elif self.snapshot_error:
            self.kubernetes.put(name, SNAPSHOT, status={"state": "FAILED", "error": self.snapshot_error})
        else:
            done = {"state": "COMPLETED", "path": f"file:/savepoints/{name}", "resultTimestamp": "2026-11-27T10:00:00Z"}
            self.kubernetes.put(name, SNAPSHOT, status=done | {"triggerTimestamp": "2026-11-27T09:59:00Z"})


def _is_new(nonce: int | None, deployed: int | None) -> bool:
    return nonce is not None and nonce != deployed
