"""The pod of one attempt's driver, and the secret with its files, as objects for the Kubernetes API.

The pod contains no secret: an account that may read pods may not be allowed to read secrets.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from checkpointing.jobs.launching.demand import MIB
from checkpointing.jobs.launching.deployment import MASTER, Deployment
from checkpointing.jobs.launching.kubernetes.api import Json
from checkpointing.jobs.launching.kubernetes.conditions import CONTAINER
from checkpointing.jobs.launching.kubernetes.configuration import NAMESPACE, PodConfiguration
from checkpointing.jobs.launching.package import PACKAGE_NAME
from checkpointing.jobs.launching.processes import SPEC_NAME
from checkpointing.jobs.launching.submission import application_name
from checkpointing.model.driver_spec import DriverSpec

CLUSTER_LABEL, JOB_LABEL, ATTEMPT_LABEL = "waymark/cluster", "waymark/job", "waymark/attempt"
KEY_ANNOTATION, NAME_ANNOTATION = "waymark/attempt-key", "waymark/job-name"
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_FILE_PREFIX, _VARIABLE_PREFIX = "file.", "env."
_GRACE_S = 30
# Kubernetes' limit for a secret's content, before base64 encoding.
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class PodPaths:
    """Paths inside the pod. `files` is the mounted secret, `work` the driver's work directory."""

    root: str
    pod: str

    @property
    def files(self) -> PurePosixPath:
        return PurePosixPath(self.root) / self.pod / "files"

    @property
    def work(self) -> PurePosixPath:
        return PurePosixPath(self.root) / self.pod / "work"

    def secret_file(self, name: str) -> str:
        return str(self.files / "secrets" / name)


@dataclass(frozen=True)
class PodContent:
    """The content of the pod's secret: `files` by name, `variables`, and `secret_files` of the job."""

    files: Mapping[str, bytes]
    variables: Mapping[str, str]
    secret_files: Mapping[str, str]

    @property
    def num_bytes(self) -> int:
        texts = (*self.variables.values(), *self.secret_files.values())
        return sum(map(len, self.files.values())) + sum(len(text.encode()) for text in texts)


def pod_name(job_id: str, attempt: int) -> str:
    return application_name(job_id, attempt)


def secret_name(spec: DriverSpec) -> str:
    """Return a name with the attempt's key, so that a secret of an earlier run of the job is not used."""
    return f"{pod_name(spec.job_id, spec.attempt)}-{attempt_key(spec)[:8]}"


def attempt_key(spec: DriverSpec) -> str:
    """Return a key that identifies the pod of this attempt. The attempt's secret cannot be derived from it."""
    return hashlib.sha256(f"pod:{spec.secret}".encode()).hexdigest()[:32]


def labels(cluster_id: str, job_id: str | None = None) -> dict[str, str]:
    """Return the labels that select the pods of a cluster of job managers, or those of one of its jobs."""
    is_fit = _LABEL.fullmatch(cluster_id)
    cluster = cluster_id if is_fit else hashlib.sha256(cluster_id.encode()).hexdigest()[:32]
    return {CLUSTER_LABEL: cluster, **({} if job_id is None else {JOB_LABEL: job_id})}


def spec_in_pod(
    spec: DriverSpec, deployment: Deployment, pod: PodConfiguration, paths: PodPaths
) -> tuple[DriverSpec, dict[str, bytes]]:
    """Return the specification with the paths inside the pod, and the files for the pod. Raise OSError."""
    files: dict[str, bytes] = {}

    def sent(path: str | None, name: str) -> str | None:
        if path is None:
            return None
        files[name] = Path(path).read_bytes()
        return str(paths.files / name)

    configuration = {**spec.configuration, MASTER: deployment.master}
    if deployment.has_executors:
        configuration |= {
            NAMESPACE: pod.namespace,
            "spark.kubernetes.driver.pod.name": paths.pod,
            "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104  (the address inside the pod)
        }
    ha = spec.high_availability
    if ha is not None and ha.access is not None:
        access = replace(
            ha.access,
            password_file=sent(ha.access.password_file, "zookeeper-password"),
            authorities=sent(ha.access.authorities, "zookeeper-authorities"),
            certificate=sent(ha.access.certificate, "zookeeper-certificate"),
            key=sent(ha.access.key, "zookeeper-key"),
        )
        ha = replace(ha, access=access)
    in_pod = replace(
        spec,
        work_directory=str(paths.work),
        program_path=str(paths.work / "submitted" / Path(spec.program_path).name),
        fetches_program=True,
        configuration=configuration,
        token_file=sent(spec.token_file, "token"),
        high_availability=ha,
    )
    return in_pod, files


def pod_manifest(
    spec: DriverSpec,
    pod: PodConfiguration,
    paths: PodPaths,
    content: PodContent,
    cluster_id: str,
    python: str,
    *,
    has_executors: bool,
) -> Json:
    volumes, mounts = _volumes(spec, pod, paths, content)
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container: Json = {
        "name": CONTAINER,
        "image": pod.image,
        "imagePullPolicy": pod.pull_policy,
        "command": [python, str(paths.files / PACKAGE_NAME), str(paths.work), str(paths.files / SPEC_NAME)],
        "env": _environment(spec, pod, paths, content, has_executors=has_executors),
        "resources": _resources(pod),
        "volumeMounts": mounts,
        "securityContext": security,
    }
    found: Json = {
        "restartPolicy": "Never",  # the job manager starts the attempts
        "terminationGracePeriodSeconds": _GRACE_S,
        # Spark in the driver creates the executors' pods. Drivers without executors do not use the API.
        "automountServiceAccountToken": has_executors,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": pod.user,
            "fsGroup": pod.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    if pod.service_account is not None:
        found["serviceAccountName"] = pod.service_account
    if pod.node_selector:
        found["nodeSelector"] = dict(pod.node_selector)
    if pod.pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in pod.pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": paths.pod,
            "namespace": pod.namespace,
            "labels": {
                **pod.labels,
                "app.kubernetes.io/name": "waymark-driver",
                "app.kubernetes.io/managed-by": "waymark",
                **labels(cluster_id, spec.job_id),
                ATTEMPT_LABEL: str(spec.attempt),
            },
            "annotations": {**pod.annotations, KEY_ANNOTATION: attempt_key(spec), NAME_ANNOTATION: spec.job_name},
        },
        "spec": found,
    }


def secret_manifest(spec: DriverSpec, pod: Json, content: PodContent, cluster_id: str) -> Json:
    """Return the secret's manifest. `pod` is the created pod: Kubernetes deletes the secret with it."""
    metadata = pod["metadata"]
    data = {
        **content.files,
        **{f"{_VARIABLE_PREFIX}{name}": value.encode() for name, value in content.variables.items()},
        **{f"{_FILE_PREFIX}{name}": text.encode() for name, text in content.secret_files.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {
            "name": secret_name(spec),
            "namespace": metadata["namespace"],
            "labels": labels(cluster_id, spec.job_id),
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def _environment(
    spec: DriverSpec, pod: PodConfiguration, paths: PodPaths, content: PodContent, *, has_executors: bool
) -> list[Json]:
    work = str(paths.work)
    plain = {
        "HOME": work,
        "TMPDIR": str(paths.work / "tmp"),
        "PYTHONUNBUFFERED": "1",
        **pod.variables,
        **spec.environment.variables,
        **{f"{name}_FILE": paths.secret_file(name) for name in content.secret_files},
    }
    if has_executors:
        plain.pop("SPARK_LOCAL_HOSTNAME", None)
    kept = {
        **{name: (secret_name(spec), f"{_VARIABLE_PREFIX}{name}") for name in content.variables},
        **pod.secret_variables,
    }
    found: list[Json] = [{"name": name, "value": value} for name, value in plain.items() if name not in kept]
    for name, (secret, key) in kept.items():
        found.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    if has_executors:  # executors connect to the address of the driver
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        found.append({"name": "SPARK_LOCAL_HOSTNAME", "valueFrom": address})
    # Kubernetes replaces $(NAME) in a value by the variable NAME.
    return [{**each, "value": each["value"].replace("$(", "$$(")} if "value" in each else each for each in found]


def _resources(pod: PodConfiguration) -> Json:
    limits = {"memory": f"{pod.memory_limit // MIB}Mi"}
    if pod.limit_cores is not None:
        limits["cpu"] = pod.limit_cores
    return {"requests": {"cpu": pod.request_cores, "memory": f"{pod.memory // MIB}Mi"}, "limits": limits}


def _volumes(
    spec: DriverSpec, pod: PodConfiguration, paths: PodPaths, content: PodContent
) -> tuple[list[Json], list[Json]]:
    names = [
        *({"key": name, "path": name} for name in content.files),
        *({"key": f"{_FILE_PREFIX}{name}", "path": f"secrets/{name}"} for name in content.secret_files),
    ]
    files: Json = {"secretName": secret_name(spec), "items": names, "defaultMode": 0o440}
    volumes: list[Json] = [{"name": "waymark-files", "secret": files}]
    mounts: list[Json] = [{"name": "waymark-files", "mountPath": str(paths.files), "readOnly": True}]
    if not pod.is_mounted(str(paths.work)):
        volumes.append({"name": "waymark-work", "emptyDir": {}})
        mounts.append({"name": "waymark-work", "mountPath": str(paths.work)})
    for secret, path in pod.secret_mounts.items():
        name = f"secret-{len(volumes)}"
        volumes.append({"name": name, "secret": {"secretName": secret}})
        mounts.append({"name": name, "mountPath": path, "readOnly": True})
    for claim in pod.claims:
        claimed = {"claimName": claim.claim, "readOnly": claim.read_only}
        volumes.append({"name": claim.name, "persistentVolumeClaim": claimed})
        mounts.append({"name": claim.name, "mountPath": claim.path, "readOnly": claim.read_only})
    return volumes, mounts
