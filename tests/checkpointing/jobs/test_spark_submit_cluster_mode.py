# ruff: noqa: ASYNC221, ASYNC240  (a test may block its own loop for a moment)
"""A driver in a cluster, watched and ended through the client's process, with stand-ins for client and driver.

The tests need no YARN or Kubernetes. They check the requests to the cluster, and that driver and client end together.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from checkpointing.jobs.launcher import LaunchFailed
from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_graph import JobGraph
from tests.checkpointing.jobs.running_job_manager import eventually, running_job_manager

CLIENT = """#!{python}
import json, os, signal, sys, time
if "--kill" in sys.argv:
    open({said!r}, "w").write(json.dumps(sys.argv[1:]))
    sys.exit()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("Submitted application application_1700000000000_0007", flush=True)
print(json.dumps(dict(pid=os.getpid(), arguments=sys.argv[1:], environ=dict(os.environ))), flush=True)
time.sleep(0 if os.path.exists({said!r} + ".end") else 600)
sys.exit(7)
"""
YARN = """#!{python}
import json, sys
open({said!r}, "w").write(json.dumps(sys.argv[1:]))
"""
SITE = Site(storage_is_shared=True, address="http://jobs.internal:8081")
KUBERNETES = {"spark.master": "k8s://https://kube.internal:6443", "spark.kubernetes.namespace": "streams"}
JOB = "0" * 32


def executable(path: Path, source: str, said: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source.format(python=sys.executable, said=str(said)))
    path.chmod(0o755)


@pytest.fixture
def said(tmp_path: Path) -> Path:
    return tmp_path / "said.json"


@pytest.fixture
def launcher(tmp_path: Path, said: Path) -> LocalDriverLauncher:
    executable(tmp_path / "spark" / "bin" / "spark-submit", CLIENT, said)
    executable(tmp_path / "bin" / "yarn", YARN, said)
    environ = {"PATH": str(tmp_path / "bin"), "SPARK_HOME": str(tmp_path / "spark"), "DATABASE_URL": "secret"}
    return LocalDriverLauncher(environ, lambda: Path("/opt"), tmp_path, site=SITE)


def spec(tmp_path: Path, master: dict[str, str]) -> DriverSpec:
    secret = {"spark.hadoop.fs.s3a.secret.key": "hidden", "spark.driver.memory": "2g"}
    configuration = {**master, "spark.submit.deployMode": "cluster", **secret}
    return DriverSpec(
        JOB, "words", 3, "p.py", "p:main", (), 4, configuration, str(tmp_path / "work"), "t", SITE.address, 20.0
    )


async def client_output(tmp_path: Path) -> dict[str, object]:
    log = tmp_path / "work" / "driver.log"
    line = await eventually(lambda: [each for each in log.read_text().splitlines() if each.startswith("{")])
    return dict(json.loads(line[0]))


async def test_the_client_gets_a_private_file_of_settings_the_package_and_the_specification(
    launcher: LocalDriverLauncher, tmp_path: Path
) -> None:
    process = launcher.launch(spec(tmp_path, {"spark.master": "yarn"}))
    heard = await client_output(tmp_path)
    work = tmp_path / "work"

    assert heard["pid"] == process.pid
    assert heard["arguments"][-1] == str(work / "driver.json")  # type: ignore[index]
    assert "hidden" not in json.dumps(heard), "neither in its arguments nor in its environment"
    assert "secret" not in json.dumps(heard["environ"])
    properties = (work / "spark.properties").read_text()
    assert "spark.hadoop.fs.s3a.secret.key=hidden" in properties
    assert "spark.driver.memory=2g" in properties
    assert "spark.yarn.maxAppAttempts=1" in properties
    assert {stat.S_IMODE((work / name).stat().st_mode) for name in ("spark.properties", "driver.json")} == {0o600}
    await process.end(5.0)


async def test_the_submitted_package_is_the_code_of_the_driver(launcher: LocalDriverLauncher, tmp_path: Path) -> None:
    process = launcher.launch(spec(tmp_path, {"spark.master": "yarn"}))
    package = tmp_path / "work" / "checkpointing.zip"

    assert "checkpointing/spark/driver.py" in zipfile.ZipFile(package).namelist()
    where = "import checkpointing.clock; print(checkpointing.clock.__file__)"
    found = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(package)!r}); {where}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(package))
    await process.end(5.0)


async def test_ending_a_yarn_driver_kills_the_application_that_the_client_named(
    launcher: LocalDriverLauncher, tmp_path: Path, said: Path
) -> None:
    process = launcher.launch(spec(tmp_path, {"spark.master": "yarn"}))
    await client_output(tmp_path)

    await process.end(5.0)

    assert json.loads(said.read_text()) == ["application", "-kill", "application_1700000000000_0007"]
    assert await process.wait() == 3, "and the client ended, as asked"
    assert not process.left_nothing, "only the cluster knows"


async def test_ending_a_kubernetes_driver_kills_its_pod(
    launcher: LocalDriverLauncher, tmp_path: Path, said: Path
) -> None:
    process = launcher.launch(spec(tmp_path, KUBERNETES))
    await client_output(tmp_path)

    await process.end(5.0)

    assert json.loads(said.read_text()) == [
        "--master",
        KUBERNETES["spark.master"],
        "--kill",
        f"streams:waymark-{JOB}-3",
    ]


async def test_the_clients_exit_code_is_the_applications(
    launcher: LocalDriverLauncher, tmp_path: Path, said: Path
) -> None:
    said.with_name(said.name + ".end").touch()

    process = launcher.launch(spec(tmp_path, {"spark.master": "yarn"}))

    assert await process.wait() == 7
    assert "Submitted application" in process.last_log_lines()
    await process.end(5.0)
    assert not said.exists(), "nothing to kill any more"


async def test_a_spark_home_without_spark_submit_is_named(tmp_path: Path) -> None:
    environ = {"SPARK_HOME": str(tmp_path / "nothing")}
    launcher = LocalDriverLauncher(environ, lambda: Path("/opt"), tmp_path, site=SITE)

    with pytest.raises(LaunchFailed, match=r"bin/spark-submit was not found in .*/nothing"):
        launcher.launch(spec(tmp_path, {"spark.master": "yarn"}))


async def test_a_submission_is_refused_with_the_cause_if_no_driver_could_start(tmp_path: Path) -> None:
    launcher = LocalDriverLauncher({}, lambda: Path("/opt"), tmp_path)
    async with running_job_manager(tmp_path, launcher) as manager:  # type: ignore[arg-type]
        for master, cause in [("mesos://m:5050", "spark.master: 'mesos://m:5050' is not allowed"), ("yarn", "SHARED")]:
            with pytest.raises(Exception, match=cause) as refused:
                await manager.submit({"spark.master": master})
            assert getattr(refused.value, "status", None) == 400
        assert (await manager.get("/jobs"))["jobs"] == []


def test_cluster_job_without_shared_storage_is_refused(tmp_path: Path) -> None:
    launcher = LocalDriverLauncher({}, lambda: Path("/opt"), tmp_path, default_master="spark://m1.internal:7077")

    with pytest.raises(InvalidConfiguration, match="WAYMARK_SHARED_STORAGE"):
        launcher.check(JobGraph(JOB, "words", "p.py", "p:main"))
    launcher.check(JobGraph(JOB, "words", "p.py", "p:main", configuration={"spark.master": "local[2]"}))
