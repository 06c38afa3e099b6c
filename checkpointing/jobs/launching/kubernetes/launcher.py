"""Runs each driver as a pod: creates it through the Kubernetes API, finds it by name, and deletes it by UID.

    the record of the attempt, with the pod's name → the pod → its secret → the driver registers

The pod waits for its secret. Each call may be repeated: the names belong to this attempt, so an object that exists
already is the attempt's own, and a lost answer does no harm. Only the claim in ZooKeeper prevents two drivers of a job.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from checkpointing.clock import Clock, SystemClock
from checkpointing.durable_files import make_directory
from checkpointing.jobs.launcher import DriverProcess, LaunchFailed
from checkpointing.jobs.launching.admission import Demand, Load
from checkpointing.jobs.launching.deployment import (
    DEFAULT_PARALLELISM,
    DEPLOY_MODE,
    MASTER,
    ClusterManager,
    Deployment,
    Site,
    deployment_of,
    loopback_servers,
)
from checkpointing.jobs.launching.environment import named_variables
from checkpointing.jobs.launching.kubernetes.api import ApiRefused, ApiUnreachable, Json, KubernetesApi
from checkpointing.jobs.launching.kubernetes.conditions import PodFacts, facts_of
from checkpointing.jobs.launching.kubernetes.configuration import (
    NAMESPACE,
    SERVICE_ACCOUNT,
    PodConfiguration,
    VolumeClaim,
)
from checkpointing.jobs.launching.kubernetes.manifests import (
    KEY_ANNOTATION,
    MOST_BYTES,
    PodContent,
    PodPaths,
    labels,
    pod_manifest,
    pod_name,
    secret_manifest,
    spec_in_pod,
)
from checkpointing.jobs.launching.kubernetes.observer import LIST_INTERVAL_S, PodId, PodObserver
from checkpointing.jobs.launching.kubernetes.process import PodProcess
from checkpointing.jobs.launching.package import PACKAGE_NAME, zipped_package
from checkpointing.jobs.launching.processes import SPEC_NAME, write_private
from checkpointing.jobs.launching.python import KEY as PYTHON
from checkpointing.jobs.python_environments.source import EnvironmentSource
from checkpointing.model.configuration import CheckpointConfiguration, CheckpointStorageKind, InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_graph import JobGraph
from checkpointing.storage.locations import is_local, local_path

logger = logging.getLogger(__name__)

T = TypeVar("T")

ROOT = "/var/lib/waymark"
_PYTHON = "python3"
_ENTRY = "import sys\nfrom checkpointing.spark.pod import main\nmain(sys.argv)\n"
_RETRY_S = 0.5
_PATIENCE_S = 20.0


@dataclass(frozen=True)
class PodDefaults:
    """The job manager's settings for pods. `root` is Waymark's directory inside the pods."""

    namespace: str
    cluster_id: str
    start_limit_s: float
    checkpoint_directory: str
    savepoint_directory: str
    root: str = ROOT


class KubernetesLauncher:
    """Launches drivers as pods. `program_variables` names variables of `environ` that drivers get."""

    def __init__(
        self,
        api: KubernetesApi,
        defaults: PodDefaults,
        site: Site,
        environ: Mapping[str, str],
        program_variables: Collection[str] = (),
        clock: Clock | None = None,
        *,
        list_interval_s: float = LIST_INTERVAL_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._api = api
        self._defaults = defaults
        self._site = site
        self._variables = named_variables(environ, program_variables)
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        self._observer = PodObserver(api, labels(defaults.cluster_id), self._clock, list_interval_s)
        self._processes: weakref.WeakValueDictionary[str, PodProcess] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def check(self, graph: JobGraph) -> None:
        deployment = self._deployment(graph.configuration, graph.parallelism)
        pod = self._pod(graph.configuration, graph.parallelism, deployment)
        source = EnvironmentSource.parse(graph.configuration)
        if source is not None:
            raise source.refusal(f"drivers that run as pods need an image with the packages, or {PYTHON}")
        for name, address in loopback_servers(self._site):
            raise InvalidConfiguration(name, address, "drivers that run as pods need an address that pods can reach")
        parsed = CheckpointConfiguration.parse(graph.configuration)
        if parsed.storage is CheckpointStorageKind.JOBMANAGER:
            key = "execution.checkpointing.storage"
            raise InvalidConfiguration(key, parsed.storage.value, "drivers that run as pods need filesystem")
        for key, location in (
            ("execution.checkpointing.dir", parsed.checkpoint_directory or self._defaults.checkpoint_directory),
            ("execution.checkpointing.savepoint-dir", parsed.savepoint_directory or self._defaults.savepoint_directory),
            ("savepointPath", graph.savepoint_path),
        ):
            if location is not None and is_local(location) and not pod.is_mounted(local_path(location)):
                allowed = (
                    "an address that pods reach, such as s3://bucket/path, or a path on a volume that the job mounts "
                    "(spark.kubernetes.driver.volumes.persistentVolumeClaim.NAME.mount.path)"
                )
                raise InvalidConfiguration(key, location, allowed)
        if deployment.has_executors:
            self._check_executors(graph, pod)

    def check_files(self, graph: JobGraph) -> None:
        """Check nothing: the files are in the image, which this process cannot read."""

    def demand_of(self, graph: JobGraph) -> Demand | None:
        """Return None, because the nodes of the cluster have their own limits."""
        return None

    @property
    def spare_load(self) -> Load:
        return Load()

    def limit_spares(self, room: Load) -> None:
        """Do nothing: there are no spare pods."""

    def pod_of(self, configuration: Mapping[str, str], job_id: str, attempt: int) -> str:
        namespace = configuration.get(NAMESPACE, "").strip() or self._defaults.namespace
        return f"{namespace}/{pod_name(job_id, attempt)}"

    def launch(self, spec: DriverSpec) -> DriverProcess:
        try:
            deployment = self._deployment(spec.configuration, spec.parallelism)
            pod = self._pod(spec.configuration, spec.parallelism, deployment)
            manifest, secret, work = self._prepared(spec, deployment, pod)
            self._remove_others(pod.namespace, spec)
            made = self._made(pod.namespace, manifest)
            self._create_secret(
                pod.namespace, secret(made), PodId(pod.namespace, pod_name(spec.job_id, spec.attempt), "")
            )
        except (InvalidConfiguration, ApiUnreachable) as error:
            raise LaunchFailed(str(error)) from error
        except ApiRefused as error:
            raise LaunchFailed(f"Kubernetes refuses the driver's pod: {error}") from error
        except OSError as error:
            raise LaunchFailed(f"The driver's pod could not be prepared: {error}") from error
        return self._followed(pod.namespace, made, work)

    def adopt(
        self, pid: int | None, job_id: str, attempt: int, work_directory: Path, pod: str | None = None
    ) -> DriverProcess | None:
        if pod is None:
            return None
        namespace, _, name = pod.partition("/")
        try:
            found = self._api.pod(namespace, name)
        except ApiRefused as error:
            if error.is_not_found:
                return None
            logger.warning("pod %s cannot be looked up; its driver may live: %s", pod, error)
            return self._process(PodId(namespace, name, ""), work_directory)
        except ApiUnreachable as error:
            logger.warning("pod %s cannot be looked up now; its driver may live: %s", pod, error)
            return self._process(PodId(namespace, name, ""), work_directory)
        return self._followed(namespace, found, work_directory) if self._is_pod_of(found, job_id) else None

    def end_spares(self) -> None:
        """Stop following all pods, and end none of them."""
        for process in list(self._processes.values()):
            process.close()
        self._observer.close()

    def _deployment(self, configuration: Mapping[str, str], parallelism: int | None) -> Deployment:
        deployment = deployment_of(configuration, parallelism=parallelism)
        if deployment.driver_is_in_the_cluster:
            allowed = "drivers that run as pods need client, because Waymark creates the pod itself"
            raise InvalidConfiguration(DEPLOY_MODE, deployment.mode.value, allowed)
        if deployment.manager not in (ClusterManager.LOCAL, ClusterManager.KUBERNETES):
            allowed = "drivers that run as pods need local[n] or k8s://https://host:port"
            raise InvalidConfiguration(MASTER, deployment.master, allowed)
        return deployment

    def _pod(
        self, configuration: Mapping[str, str], parallelism: int | None, deployment: Deployment
    ) -> PodConfiguration:
        cores = 1 if deployment.has_executors else _cores(deployment.master, parallelism)
        return PodConfiguration.parse(configuration, self._defaults.namespace, cores)

    def _check_executors(self, graph: JobGraph, pod: PodConfiguration) -> None:
        """Raise InvalidConfiguration unless driver and executors share a volume for the state of the queries."""
        if pod.service_account is None:
            allowed = "the name of a service account that may make pods: the driver starts the executors"
            raise InvalidConfiguration(SERVICE_ACCOUNT, "", allowed)
        work = str(PodPaths(self._defaults.root, pod_name(graph.job_id, 1)).work)
        if not any(claim.has(work) and _executors_mount(graph.configuration, claim) for claim in pod.claims):
            master = graph.configuration.get(MASTER, "")
            allowed = (
                f"local[n], or a volume that driver and executors both mount at {self._defaults.root} "
                "(spark.kubernetes.driver.volumes.persistentVolumeClaim.NAME.… and …executor.volumes.…)"
            )
            raise InvalidConfiguration(MASTER, master, allowed)

    def _prepared(
        self, spec: DriverSpec, deployment: Deployment, pod: PodConfiguration
    ) -> tuple[Json, Callable[[Json], Json], Path]:
        """Return the manifest of the pod, a function that makes its secret's manifest, and the attempt's directory."""
        cluster, work = self._defaults.cluster_id, Path(spec.work_directory)
        paths = PodPaths(self._defaults.root, pod_name(spec.job_id, spec.attempt))
        sent, files = spec_in_pod(spec, deployment, pod, paths)
        make_directory(work)
        # This copy is for people and for the page of logs. It lacks the secret, which only the pod needs.
        write_private(work / SPEC_NAME, json.dumps(replace(sent, secret="").to_json(), indent=1))
        given = spec.environment
        content = PodContent(
            {SPEC_NAME: json.dumps(sent.to_json()).encode(), PACKAGE_NAME: _package(), **files},
            {**self._variables, **given.secrets},
            given.secret_files,
        )
        if content.num_bytes > MOST_BYTES:
            raise LaunchFailed(
                f"The pod's secret would have {content.num_bytes} bytes; at most {MOST_BYTES} are allowed."
            )
        python, has_executors = spec.configuration.get(PYTHON, _PYTHON), deployment.has_executors
        manifest = pod_manifest(sent, pod, paths, content, cluster, python, has_executors=has_executors)
        return manifest, lambda made: secret_manifest(sent, made, content, cluster), work

    def _remove_others(self, namespace: str, spec: DriverSpec) -> None:
        """Delete the pods of the job's earlier attempts, which have ended according to their records."""
        selector = labels(self._defaults.cluster_id, spec.job_id)
        for other in self._call_with_retries(lambda: self._api.pods(namespace, selector)):
            metadata = other["metadata"]
            if metadata["name"] != pod_name(spec.job_id, spec.attempt):
                self._observer.delete_later(PodId(namespace, metadata["name"], metadata["uid"]))

    def _made(self, namespace: str, manifest: Json) -> Json:
        """Create the attempt's pod and return it. After a lost answer it may already exist."""
        pod = PodId(namespace, manifest["metadata"]["name"], "")
        try:
            return self._call_with_retries(lambda: self._api.create_pod(namespace, manifest))
        except ApiUnreachable:
            self._observer.delete_later(pod)
            raise
        except ApiRefused as error:
            if not error.is_conflict:
                raise
        found = self._call_with_retries(lambda: self._api.pod(namespace, pod.name))
        if _key(found) != _key(manifest):
            raise LaunchFailed(f"The pod {pod} already exists and does not belong to this attempt.")
        return found

    def _create_secret(self, namespace: str, secret: Json, pod: PodId) -> None:
        try:
            self._call_with_retries(lambda: self._api.create_secret(namespace, secret))
        except ApiRefused as error:
            if not error.is_conflict:  # an earlier call created the secret, but its answer was lost
                self._observer.delete_later(pod)
                raise
        except ApiUnreachable:
            self._observer.delete_later(pod)
            raise

    def _call_with_retries(self, call: Callable[[], T]) -> T:
        deadline = self._clock.monotonic() + self._patience_s
        while True:
            try:
                return call()
            except ApiUnreachable:
                if self._clock.monotonic() > deadline:
                    raise
                threading.Event().wait(_RETRY_S)

    def _followed(self, namespace: str, pod: Json, work: Path) -> PodProcess:
        metadata = pod["metadata"]
        return self._process(PodId(namespace, metadata["name"], metadata["uid"]), work, facts_of(pod))

    def _process(self, pod: PodId, work: Path, facts: PodFacts | None = None) -> PodProcess:
        """Return the one process object of a pod. A driver may register before its launch has ended."""
        with self._lock:
            process = self._processes.get(str(pod))
            if process is None or process.is_closed:
                self._observer.follow(pod, facts)
                limit_s = self._defaults.start_limit_s
                process = PodProcess(pod, work, self._api, self._observer, self._clock, limit_s)
                self._processes[str(pod)] = process
            return process

    def _is_pod_of(self, pod: Json, job_id: str) -> bool:
        have = pod["metadata"].get("labels") or {}
        return all(have.get(key) == value for key, value in labels(self._defaults.cluster_id, job_id).items())


def _key(pod: Json) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(KEY_ANNOTATION, ""))


def _cores(master: str, parallelism: int | None) -> int:
    match = re.match(r"local\[(\d+)", master)
    return int(match[1]) if match is not None else parallelism or DEFAULT_PARALLELISM


def _executors_mount(configuration: Mapping[str, str], claim: VolumeClaim) -> bool:
    key = f"spark.kubernetes.executor.volumes.persistentVolumeClaim.{claim.name}."
    have = (configuration.get(f"{key}options.claimName", ""), configuration.get(f"{key}mount.path", ""))
    return have == (claim.claim, claim.path)


@functools.cache
def _package() -> bytes:
    """Return Waymark's part of the driver as a zip file that Python can run."""
    with tempfile.TemporaryDirectory() as directory:
        path = zipped_package(Path(directory) / PACKAGE_NAME)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("__main__.py", _ENTRY)
        return path.read_bytes()
