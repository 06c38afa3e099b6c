"""Drivers as pods, with a simulated API: a pod is created once in spite of lost answers, watched and ended."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpointing.clock import Clock, ManualClock
from checkpointing.jobs.launcher import DriverProcess, LaunchFailed
from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.kubernetes.launcher import KubernetesLauncher, PodDefaults
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_environment import JobEnvironment
from checkpointing.model.job_graph import JobGraph
from tests.checkpointing.jobs.played_kubernetes import NAMESPACE, PlayedKubernetes
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
JOB = "0123456789abcdef" * 2
POD = f"waymark-{JOB}-1"
SITE = Site(storage_is_shared=False, address="http://jobs.internal:8081")
CONFIGURATION = {"spark.kubernetes.container.image": "registry/streams:1"}
SHORT_S = 0.3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlayedKubernetes]:
    with PlayedKubernetes(tmp_path).serving() as serving:
        yield serving


@pytest.fixture
def launcher(cluster: PlayedKubernetes, tmp_path: Path) -> Iterator[KubernetesLauncher]:
    made = launcher_for(cluster, tmp_path)
    yield made
    made.end_spares()


def launcher_for(
    cluster: PlayedKubernetes,
    tmp_path: Path,
    *,
    start_limit_s: float = 60.0,
    patience_s: float = 20.0,
    site: Site = SITE,
    clock: Clock | None = None,
) -> KubernetesLauncher:
    snapshots = ("s3://bucket/checkpoints", "s3://bucket/savepoints")
    defaults = PodDefaults(NAMESPACE, "jobs", start_limit_s, *snapshots, root=str(tmp_path / "pods"))
    environ = {"AWS_SECRET_ACCESS_KEY": "key of the storage", "PATH": "/of/the/job/manager", "WAYMARK_SECRET_KEY": "no"}
    return KubernetesLauncher(
        cluster.api(), defaults, site, environ, ["AWS_*"], clock, list_interval_s=0.02, patience_s=patience_s
    )


def spec(tmp_path: Path, attempt: int = 1, configuration: dict[str, str] | None = None, **more: Any) -> DriverSpec:
    return DriverSpec(
        job_id=JOB,
        job_name="Words $(HOME)",
        attempt=attempt,
        program_path="/state/jobs/program/words.py",
        entry_class="words.py:main",
        program_args=(),
        parallelism=2,
        configuration={**CONFIGURATION, **(configuration or {})},
        work_directory=str(tmp_path / f"attempt-{attempt}"),
        timeline="t",
        job_manager_address=SITE.address,
        lease_s=20.0,
        secret=f"the secret of attempt {attempt}",
        **more,
    )


def graph(configuration: dict[str, str], **more: Any) -> JobGraph:
    return JobGraph(JOB, "words", "jar", "words.py:main", configuration=configuration, **more)


def running(cluster: PlayedKubernetes) -> Any:
    return eventually("a running container", cluster.container)


# --- created objects ---


def test_a_pod_has_what_its_job_requests_and_the_least_rights(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    asked = {
        "spark.driver.memory": "2g",
        "spark.kubernetes.driver.request.cores": "500m",
        "spark.kubernetes.driver.limit.cores": "3",
        "spark.kubernetes.node.selector.disk": "ssd",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "streams",
        "spark.kubernetes.driver.secretKeyRef.DB_PASSWORD": "database:password",
    }
    launcher.launch(spec(tmp_path, configuration=asked))
    pod = cluster.pod()
    [container] = pod["spec"]["containers"]

    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == (POD, NAMESPACE)
    wanted = {"waymark/cluster": "jobs", "waymark/job": JOB, "waymark/attempt": "1"}
    assert wanted.items() <= pod["metadata"]["labels"].items()
    assert container["image"] == "registry/streams:1"
    memory = f"{2048 + 819}Mi"
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": memory},
        "limits": {"cpu": "3", "memory": memory},
    }
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["serviceAccountName"] == "streams"
    reference = {"secretKeyRef": {"name": "database", "key": "password"}}
    assert {"name": "DB_PASSWORD", "valueFrom": reference} in container["env"]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert (pod["spec"]["securityContext"]["runAsNonRoot"], pod["spec"]["securityContext"]["runAsUser"]) == (True, 185)
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == security


@pytest.mark.parametrize(
    ("configuration", "request_mi", "limit_mi"),
    [
        ({}, 768 + 384, 768 + 384),
        ({"spark.driver.memory": "2g", "spark.kubernetes.memoryOverheadFactor": "0.5"}, 3072, 3072),
        ({"waymark.driver.memory": "3gb", "spark.driver.memory": "1g"}, 3072, 3072),
        ({"waymark.driver.memory-limit": "2gb"}, 768 + 384, 2048),
        ({"waymark.driver.memory": "3gb", "waymark.driver.memory-limit": "4gb"}, 3072, 4096),
    ],
)
def test_a_pod_has_the_memory_that_its_job_requests(
    cluster: PlayedKubernetes,
    launcher: KubernetesLauncher,
    tmp_path: Path,
    configuration: dict[str, str],
    request_mi: int,
    limit_mi: int,
) -> None:
    launcher.launch(spec(tmp_path, configuration=configuration))
    [container] = cluster.pod()["spec"]["containers"]
    resources = container["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == (f"{request_mi}Mi", f"{limit_mi}Mi")


def test_a_pod_uses_no_memory_of_the_job_managers_machine(launcher: KubernetesLauncher) -> None:
    assert launcher.demand_of(graph({**CONFIGURATION, "waymark.driver.memory": "100gb"})) is None


def test_secrets_are_only_in_the_secret_of_the_pod_and_removed_with_it(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    token = tmp_path / "jm-token"
    token.write_text("bearer token")
    environment = JobEnvironment({"PLAIN": "seen"}, {"PASSWORD": "job password"}, {"KEY": "job key"})
    process = launcher.launch(spec(tmp_path, environment=environment, token_file=str(token)))
    container = running(cluster)
    hidden = ("the secret of attempt 1", "bearer token", "job password", "job key", "key of the storage")

    shown = json.dumps(cluster.created) + (tmp_path / "attempt-1" / "driver.json").read_text()
    assert [text for text in hidden if text in shown] == []
    [secret] = cluster.secrets.values()
    data = {name: base64.b64decode(value) for name, value in secret["data"].items()}
    assert (data["env.PASSWORD"], data["file.KEY"]) == (b"job password", b"job key")
    assert data["env.AWS_SECRET_ACCESS_KEY"] == b"key of the storage"
    assert b"WAYMARK_SECRET_KEY" not in b"".join(data.values()), "the job manager's own"
    sent = DriverSpec.from_json(json.loads(data["driver.json"]))
    assert sent.fetches_program
    assert sent.token_file is not None
    assert container.files[sent.token_file] == b"bearer token"
    assert {"PLAIN": "seen"}.items() <= sent.environment.variables.items()

    asyncio.run(process.end(5.0))
    assert (cluster.pods, cluster.secrets) == ({}, {})


async def test_the_driver_runs_what_the_zip_file_unpacks(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    await asyncio.to_thread(launcher.launch, spec(tmp_path))
    files = running(cluster).files
    [path] = [path for path in files if path.endswith("checkpointing.zip")]
    [container] = cluster.pod()["spec"]["containers"]
    assert container["command"][:2] == ["python3", path]
    (tmp_path / "side.zip").write_bytes(files[path])
    code = "import checkpointing.spark.pod as pod, runpy; pod.os.execv = lambda *a: print(*a[1][1:], pod.os.getcwd());"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    arguments = [str(tmp_path / "side.zip"), str(tmp_path / "work"), "driver.json"]
    script = f"import sys; sys.argv[:] = {arguments!r}; sys.path.insert(0, sys.argv[0]); {code}"
    run = await asyncio.create_subprocess_exec(
        "python3", "-I", "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await run.communicate()
    assert out.decode().split() == ["-m", "checkpointing.spark.driver", "driver.json", str(tmp_path / "work")], err
    assert (tmp_path / "work" / "waymark" / "checkpointing" / "jobs" / "launching" / "log4j2.properties").is_file()


# --- no object is created twice or forgotten ---


@pytest.mark.parametrize("call", [("POST", "pods"), ("POST", "secrets"), ("GET", "pods")])
def test_a_lost_answer_creates_no_second_pod(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path, call: tuple[str, str]
) -> None:
    cluster.lost = [call]
    launcher.launch(spec(tmp_path))
    running(cluster)
    assert [pod["metadata"]["name"] for pod in cluster.created] == [POD]
    assert cluster.lost == []


@pytest.mark.parametrize("call", [("POST", "pods"), ("POST", "secrets"), ("GET", "pods")])
def test_the_launch_waits_while_the_api_is_unreachable(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path, call: tuple[str, str]
) -> None:
    cluster.away_for = {call}
    done = threading.Event()
    thread = threading.Thread(target=lambda: (launcher.launch(spec(tmp_path)), done.set()))
    thread.start()
    eventually("two tries", lambda: cluster.calls.count(call) >= 2)
    assert not done.is_set()
    cluster.away_for = set()
    thread.join()
    running(cluster)
    assert len(cluster.created) == 1


def test_a_pod_whose_secret_cannot_be_created_is_removed_once_the_api_answers(
    cluster: PlayedKubernetes, tmp_path: Path
) -> None:
    launcher = launcher_for(cluster, tmp_path, patience_s=0.0)
    cluster.lost = [("POST", "pods")]
    cluster.away_for = {("GET", "pods")}
    with pytest.raises(LaunchFailed, match="does not answer"):
        launcher.launch(spec(tmp_path))
    cluster.away_for = {("POST", "secrets")}
    with pytest.raises(LaunchFailed, match="does not answer"):
        launcher.launch(spec(tmp_path))
    eventually("the pod is removed", lambda: cluster.deleted == [POD])
    assert cluster.pods == {}
    launcher.end_spares()


def test_a_pod_of_an_earlier_run_of_the_job_is_not_used_for_this_attempt(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    launcher.launch(spec(tmp_path))
    with pytest.raises(LaunchFailed, match="does not belong to this attempt"):
        launcher.launch(DriverSpec(**{**vars(spec(tmp_path)), "secret": "another"}))


def test_pods_of_attempts_that_are_over_are_removed_by_the_next_launch(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    launcher.launch(spec(tmp_path))
    running(cluster)
    launcher.launch(spec(tmp_path, attempt=2))
    eventually("the first is removed", lambda: cluster.deleted == [POD])
    assert list(cluster.pods) == [f"waymark-{JOB}-2"]


def test_refusal_of_kubernetes_is_reported(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    cluster.refuses[("POST", "pods")] = (403, "Forbidden", "exceeded quota: memory")
    with pytest.raises(LaunchFailed, match="Kubernetes refuses the driver's pod: exceeded quota: memory"):
        launcher.launch(spec(tmp_path))


# --- lost pods ---


async def loss(process: DriverProcess) -> tuple[str, str]:
    await asyncio.wait_for(process.wait(), 60)
    assert process.loss is not None
    return process.loss.name, process.loss.message


async def test_an_evicted_pod_reports_the_eviction(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster)
    cluster.evict(POD, "The node was low on resource: memory.")
    message = f"Kubernetes evicted the pod {NAMESPACE}/{POD} of the driver: The node was low on resource: memory."
    assert await loss(process) == ("PodEvicted", message)


async def test_a_pod_that_ran_out_of_memory_reports_it(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster)
    cluster.run_out_of_memory(POD)
    assert await process.wait() == 137
    name, message = await loss(process)
    assert name == "PodOutOfMemory"
    assert "used more memory than its limit of 1152Mi. Raise waymark.driver.memory-limit" in message
    assert process.left_nothing, "the node saw it end"


async def test_a_deleted_pod_is_lost_when_it_has_ended(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster)
    cluster.delete(POD)
    assert await loss(process) == ("PodDeleted", f"The pod {NAMESPACE}/{POD} of the driver was deleted.")


async def test_a_pod_missing_with_its_node_may_still_run(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster)
    cluster.node_answers = False
    with cluster.lock:
        del cluster.pods[POD]
    await process.wait()
    assert not process.left_nothing, "only the claim says when the next attempt may start"


async def test_a_container_that_ends_by_itself_reports_its_exit_code(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster).exit_code = 3
    assert await process.wait() == 3
    assert (await loss(process))[1].endswith("ended with exit code 3 without saying why.")


@pytest.mark.parametrize(
    ("switch", "reason"),
    [
        ("schedules", "Unschedulable: 0/3 nodes are available: 3 Insufficient memory."),
        ("pulls_images", 'ImagePullBackOff: Back-off pulling image "registry/streams:1".'),
    ],
)
async def test_a_pod_that_does_not_start_fails_with_its_reason(
    cluster: PlayedKubernetes, tmp_path: Path, switch: str, reason: str
) -> None:
    launcher = launcher_for(cluster, tmp_path, start_limit_s=SHORT_S)
    setattr(cluster, switch, False)
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    assert not process.has_started
    name, message = await loss(process)
    assert name == "PodNotStarted"
    assert message.endswith(reason)
    await process.end(5.0)
    assert cluster.pods == {}
    launcher.end_spares()


# --- the API is unavailable ---


async def test_a_pod_whose_state_cannot_be_read_is_not_dead(cluster: PlayedKubernetes, tmp_path: Path) -> None:
    launcher = launcher_for(cluster, tmp_path, start_limit_s=SHORT_S)
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster)
    eventually("seen to run", lambda: process.has_started)
    cluster.is_away = True
    lists = cluster.calls.count(("GET", "pods"))
    eventually("earlier lists have ended", lambda: cluster.calls.count(("GET", "pods")) >= lists + 2)
    cluster.container().exit_code = 1
    calls = len(cluster.calls)
    eventually("asked in vain", lambda: len(cluster.calls) > calls + 2 * SHORT_S / 0.02)
    waiting = asyncio.ensure_future(process.wait())
    done, _ = await asyncio.wait({waiting}, timeout=SHORT_S)
    assert not done
    cluster.is_away = False
    assert await waiting == 1
    launcher.end_spares()


async def test_the_time_without_the_api_does_not_count_against_a_waiting_pod(
    cluster: PlayedKubernetes, tmp_path: Path
) -> None:
    clock = ManualClock()
    launcher = launcher_for(cluster, tmp_path, clock=clock)
    cluster.schedules = False
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    cluster.is_away = True
    clock.advance(3600)
    calls = len(cluster.calls)
    eventually("asked in vain", lambda: len(cluster.calls) > calls + 2)
    done, _ = await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=SHORT_S)
    assert not done
    launcher.end_spares()


# --- ended and adopted pods ---


async def test_only_the_pod_with_the_same_uid_is_deleted(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster)
    with cluster.lock:
        cluster.pods[POD]["metadata"]["uid"] = "another pod of the same name"
    await process.end(0.1)
    assert (list(cluster.pods), cluster.deleted) == ([POD], [])


async def test_any_job_manager_adopts_a_live_pod(cluster: PlayedKubernetes, tmp_path: Path) -> None:
    first, second = launcher_for(cluster, tmp_path), launcher_for(cluster, tmp_path)
    await asyncio.to_thread(first.launch, spec(tmp_path))
    running(cluster)
    first.end_spares()
    pod = first.pod_of(CONFIGURATION, JOB, 1)
    process = await asyncio.to_thread(second.adopt, None, JOB, 1, tmp_path / "attempt-1", pod)
    assert process is not None
    assert process.has_started
    await process.end(5.0)
    assert cluster.deleted == [POD]
    assert await asyncio.to_thread(second.adopt, None, JOB, 1, tmp_path / "attempt-1", pod) is None, "it is gone"
    second.end_spares()


async def test_a_pod_that_cannot_be_read_is_adopted_and_found_later(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    first = launcher_for(cluster, tmp_path)
    await asyncio.to_thread(first.launch, spec(tmp_path))
    running(cluster)
    first.end_spares()
    cluster.is_away = True
    process = await asyncio.to_thread(launcher.adopt, None, JOB, 1, tmp_path / "attempt-1", f"{NAMESPACE}/{POD}")
    assert process is not None
    assert not process.has_started, "nobody can say"
    cluster.is_away = False
    eventually("seen to run", lambda: process.has_started)
    await process.end(5.0)
    assert cluster.deleted == [POD]


def test_a_driver_that_registers_before_its_launch_has_ended_is_the_same_process(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    """Two process objects would copy the driver's log twice."""
    cluster.lost = [("POST", "secrets")]
    adopted: list[DriverProcess | None] = []

    def adopt() -> None:
        running(cluster)
        adopted.append(launcher.adopt(None, JOB, 1, tmp_path / "attempt-1", f"{NAMESPACE}/{POD}"))

    thread = threading.Thread(target=adopt)
    thread.start()
    launched = launcher.launch(spec(tmp_path))
    thread.join()
    assert adopted == [launched]


def test_a_pod_of_another_cluster_of_job_managers_is_not_adopted(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    launcher.launch(spec(tmp_path))
    with cluster.lock:
        cluster.pods[POD]["metadata"]["labels"]["waymark/cluster"] = "other"
    assert launcher.adopt(None, JOB, 1, tmp_path / "attempt-1", f"{NAMESPACE}/{POD}") is None


# --- logs ---


async def test_the_log_is_kept_after_the_pod_and_continues_under_the_next_job_manager(
    cluster: PlayedKubernetes, tmp_path: Path
) -> None:
    log = tmp_path / "attempt-1" / "driver.log"

    def kept() -> str:
        return log.read_text() if log.exists() else ""

    first, second = launcher_for(cluster, tmp_path), launcher_for(cluster, tmp_path)
    await asyncio.to_thread(first.launch, spec(tmp_path))
    container = running(cluster)
    container.said = b"one\ntwo\n"
    eventually("the first lines", lambda: kept() == "one\ntwo\n")
    first.end_spares()
    process = await asyncio.to_thread(second.adopt, None, JOB, 1, tmp_path / "attempt-1", f"{NAMESPACE}/{POD}")
    assert process is not None
    container.said += b"three\n"
    eventually("the next line", lambda: kept() == "one\ntwo\nthree\n")
    container.said += b"last words\n"
    container.exit_code = 1
    await process.wait()
    assert process.last_log_lines() == "one\ntwo\nthree\nlast words"
    await process.end(1.0)
    assert kept() == "one\ntwo\nthree\nlast words\n"
    second.end_spares()


# --- refused jobs ---


@pytest.mark.parametrize(
    ("configuration", "refusal"),
    [
        ({"spark.kubernetes.container.image": ""}, "spark.kubernetes.container.image: '' is not allowed; an image"),
        ({"spark.kubernetes.namespace": "Streams"}, "spark.kubernetes.namespace: 'Streams' is not allowed"),
        ({"spark.kubernetes.driver.request.cores": "two"}, "'two' is not allowed; processors such as 2 or 500m"),
        ({"spark.kubernetes.driver.limit.cores": "0"}, "'0' is not allowed; processors such as 2 or 500m"),
        ({"spark.driver.memory": "lots"}, "spark.driver.memory: 'lots' is not allowed; a whole number, at least 1"),
        ({"waymark.driver.memory": "2"}, "waymark.driver.memory: '2' is not allowed; at least 1mb"),
        ({"waymark.driver.memory-limit": "1gb"}, "memory-limit: '1gb' is not allowed; at least what"),
        ({"waymark.python.requirements": "pandas==2.2.3"}, "is not allowed; drivers that run as pods need an image"),
        ({"waymark.python.archive": "s3://envs/orders.tar.gz"}, "archive: 's3://envs/orders.tar.gz' is not allowed"),
        ({"spark.kubernetes.node.selector.disk": "s s d"}, "'s s d' is not allowed; at most 63 letters"),
        ({"spark.kubernetes.driver.podTemplateFile": "/pod.yaml"}, "pod templates are not supported"),
        ({"spark.kubernetes.driver.secretKeyRef.P": "database"}, "the name of a secret, a colon, its key"),
        ({"waymark.kubernetes.run-as-user": "0"}, "'0' is not allowed; the number of a user other than root"),
        ({"spark.submit.deployMode": "cluster", "spark.master": "yarn"}, "drivers that run as pods need client"),
        ({"spark.master": "spark://m:7077"}, "local\\[n\\] or k8s://https://host:port"),
        ({"spark.master": "k8s://https://k:1"}, "serviceAccountName: '' is not allowed"),
        ({"execution.checkpointing.dir": "/snapshots"}, "checkpointing.dir: '/snapshots' is not allowed; an address"),
        ({"execution.checkpointing.storage": "jobmanager"}, "drivers that run as pods need filesystem"),
        ({"spark.kubernetes.driver.volumes.hostPath.x.mount.path": "/x"}, "only volumes of persistent volume claims"),
    ],
)  # fmt: skip
def test_a_job_that_could_not_run_as_a_pod_is_refused(
    launcher: KubernetesLauncher, configuration: dict[str, str], refusal: str
) -> None:
    launcher.check(graph(CONFIGURATION))
    with pytest.raises(InvalidConfiguration, match=refusal):
        launcher.check(graph({**CONFIGURATION, **configuration}))


def test_snapshots_may_be_stored_on_a_volume_that_the_job_mounts(launcher: KubernetesLauncher) -> None:
    volume = "spark.kubernetes.driver.volumes.persistentVolumeClaim.snapshots"
    mounted = {f"{volume}.options.claimName": "snapshots", f"{volume}.mount.path": "/snapshots"}
    launcher.check(graph({**CONFIGURATION, **mounted, "execution.checkpointing.dir": "/snapshots/checkpoints"}))
    with pytest.raises(InvalidConfiguration, match="/snapshotsandmore"):
        launcher.check(graph({**CONFIGURATION, **mounted, "execution.checkpointing.dir": "/snapshotsandmore"}))


@pytest.mark.parametrize("site", [Site(False, "http://127.0.0.1:8081"), Site(False, SITE.address, "localhost:2181")])
def test_servers_that_no_pod_reaches_are_refused(cluster: PlayedKubernetes, tmp_path: Path, site: Site) -> None:
    with pytest.raises(InvalidConfiguration, match="an address that pods can reach"):
        launcher_for(cluster, tmp_path, site=site).check(graph(CONFIGURATION))


def test_executors_share_a_volume_with_their_driver(launcher: KubernetesLauncher, tmp_path: Path) -> None:
    account = {"spark.kubernetes.authenticate.driver.serviceAccountName": "streams"}
    asked = {**CONFIGURATION, **account, "spark.master": "k8s://https://k:1"}
    with pytest.raises(InvalidConfiguration, match="a volume that driver and executors both mount"):
        launcher.check(graph(asked))
    for who in ("driver", "executor"):
        volume = f"spark.kubernetes.{who}.volumes.persistentVolumeClaim.state"
        asked |= {f"{volume}.options.claimName": "state", f"{volume}.mount.path": str(tmp_path / "pods")}
    launcher.check(graph(asked))


# --- permissions of the job manager's account ---

_VERBS = {
    ("POST", "pods"): {("pods", "create")},
    ("POST", "secrets"): {("secrets", "create")},
    ("GET", "pods"): {("pods", "get"), ("pods", "list")},
    ("DELETE", "pods"): {("pods", "delete")},
    ("GET", "log"): {("pods/log", "get")},
}


async def test_the_shipped_role_allows_exactly_the_calls_of_the_launcher(
    cluster: PlayedKubernetes, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(launcher.launch, spec(tmp_path))
    running(cluster)
    assert (
        await asyncio.to_thread(launcher.adopt, None, JOB, 1, tmp_path / "attempt-1", f"{NAMESPACE}/{POD}") is not None
    )
    eventually("its log is read", lambda: ("GET", "log") in cluster.calls)
    await process.end(5.0)
    called = set().union(*(_VERBS[call] for call in cluster.calls))

    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "rbac.yaml").read_text())
    [role] = [each for each in documents if each["kind"] == "Role" and each["metadata"]["name"] == "waymark-jobmanager"]
    allowed = {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert allowed == called
