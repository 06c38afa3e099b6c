# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""`waymark.python`: which Pythons are refused before a start, and which packages a driver in one finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointing.jobs.launcher import LaunchFailed
from checkpointing.jobs.launching import python
from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.launching.package import PACKAGE_ROOT
from checkpointing.jobs.launching.python import KEY, NEEDED, check_python
from checkpointing.jobs.launching.signature import signature_of
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_graph import JobGraph
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

NO_FILE = "/srv/venvs/no such/bin/python"
Made = Callable[..., Path]
STAND_IN = """\
import importlib.util, json, os, sys
found = {name: importlib.util.find_spec(name) is not None for name in ("checkpointing.spark.driver", "monitoring")}
print(json.dumps({"python": sys.executable, "found": found, "environ": dict(os.environ)}), "ready", flush=True)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Made:
    """Return a function that creates a virtual environment of packages without code, and returns its Python."""

    def make(**versions: str) -> Path:
        home = tmp_path / "venv"
        venv.create(home, symlinks=True)
        (site,) = home.glob("lib/python*/site-packages")
        for name, version in versions.items():
            metadata = site / f"{name}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (site / "stand_in.py").write_text(STAND_IN)
        return home / "bin" / "python"

    return make


def whole(pyspark: str) -> dict[str, str]:
    return {**dict.fromkeys(NEEDED, "1.0"), "pyspark": pyspark}


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.1", "4.3.0", "4.3.1.dev0"])
def test_supported_versions_of_pyspark_are_accepted(environment: Made, version: str) -> None:
    check_python({KEY: str(environment(**whole(version)))})


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "5.0.0"])
def test_another_version_of_pyspark_is_refused_in_one_sentence(environment: Made, version: str) -> None:
    found = environment(**whole(version))

    with pytest.raises(InvalidConfiguration) as refusal:
        check_python({KEY: str(found)})

    expected = f"an environment with PySpark 4.0 to 4.3; it has {version}"
    assert str(refusal.value) == f"waymark.python: '{found}' is not allowed; {expected}"


def test_an_environment_without_required_packages_is_refused(environment: Made) -> None:
    found = environment(pyspark="4.3.0", py4j="0.10", fsspec="1")
    with pytest.raises(InvalidConfiguration, match=r"it lacks kazoo, msgspec, websockets$"):
        check_python({KEY: str(found)})


def test_an_older_python_is_refused(environment: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "PYTHON_FROM", (99, 0))
    with pytest.raises(InvalidConfiguration, match=r"Python 99\.0 or newer; it is 3\."):
        check_python({KEY: str(environment(**whole("4.3.0")))})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("venv/bin/python", "an absolute path"),
        (NO_FILE, "exists on the job manager's machine"),
        ("/usr", "exists on the job manager's machine"),
        (__file__, "may execute"),
        ("/bin/true", "a Python that starts"),
    ],
)
def test_executable_that_is_not_a_python_is_refused(path: str, message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        check_python({KEY: path})


def test_the_python_of_the_job_manager_is_the_default() -> None:
    check_python({})
    check_python({KEY: sys.executable})


IMPORTS = """\
import sys
before = set(sys.modules)
import checkpointing.spark.driver, checkpointing.spark.spare
imported = {name: getattr(sys.modules[name], "__file__", None) or "" for name in sys.modules.keys() - before}
print(*{name.partition(".")[0] for name, file in imported.items() if "site-packages" in file})
"""


def test_a_driver_imports_only_the_needed_packages() -> None:
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    done = subprocess.run([sys.executable, "-c", IMPORTS], env=environ, capture_output=True, text=True, check=True)

    # pure-sasl comes with kazoo[sasl]; PySpark and msgspec import the others where they are installed.
    assert set(done.stdout.split()) - {"puresasl", "numpy", "typing_extensions"} == set(NEEDED)


def spec(work: Path, configuration: dict[str, str]) -> DriverSpec:
    return DriverSpec(
        "0" * 32, "job", 1, "p.py", "p:main", (), None, configuration, str(work), "t", "http://x", 20.0
    )  # fmt: skip


async def test_a_driver_runs_in_the_python_of_its_job_with_only_the_driver_package(
    environment: Made, tmp_path: Path
) -> None:
    found = environment(**whole("4.2.0"))
    own = {"SPARK_HOME": "/opt/spark", "VIRTUAL_ENV": "/opt/waymark", "PYTHONPATH": "/opt/more", "HOME": "/home/me"}
    launcher = LocalDriverLauncher(
        {"PATH": os.environ["PATH"], **own}, lambda: Path("/opt/java"), tmp_path / "state", module="stand_in"
    )

    process = launcher.launch(spec(tmp_path / "work", {KEY: str(found)}))

    log = await eventually(lambda: process.last_log_lines() if "ready" in process.last_log_lines() else "")
    result = json.loads(log.removesuffix(" ready"))
    assert result["python"] == result["environ"]["PYSPARK_PYTHON"] == str(found)
    assert result["found"] == {"checkpointing.spark.driver": True, "monitoring": False}
    assert {name: result["environ"].get(name) for name in own} == {
        "SPARK_HOME": None,
        "VIRTUAL_ENV": None,
        "PYTHONPATH": f"{result['environ']['TMPDIR']}/waymark",
        "HOME": "/home/me",
    }
    await process.end(5.0)
    launcher.temporaries.sweep()
    assert not Path(result["environ"]["TMPDIR"]).exists()


def test_an_environment_that_has_changed_since_the_submission_starts_no_driver(
    environment: Made, tmp_path: Path
) -> None:
    launcher = LocalDriverLauncher(os.environ, lambda: Path("/opt/java"), tmp_path / "state", module="stand_in")
    with pytest.raises(LaunchFailed, match=r"it has 4\.4\.0$"):
        launcher.launch(spec(tmp_path / "work", {KEY: str(environment(**whole("4.4.0")))}))
    assert not (tmp_path / "work").exists()


def test_a_spare_of_another_python_does_not_fit(tmp_path: Path) -> None:
    assert signature_of(spec(tmp_path, {})) == signature_of(spec(tmp_path, {KEY: sys.executable}))
    assert signature_of(spec(tmp_path, {})) != signature_of(spec(tmp_path, {KEY: "/srv/venv/bin/python"}))


def test_a_driver_in_the_cluster_runs_in_the_clusters_python(tmp_path: Path) -> None:
    site = Site(storage_is_shared=True, address="http://jm.internal:8081")
    launcher = LocalDriverLauncher({}, lambda: Path("/opt"), tmp_path, site=site)
    place = {"spark.master": "yarn", "spark.submit.deployMode": "cluster", KEY: sys.executable}

    with pytest.raises(InvalidConfiguration, match=r"spark\.pyspark\.python instead"):
        launcher.check(JobGraph("0" * 32, "job", "jar", "p:main", configuration=place))


async def test_bad_python_is_refused_before_anything_starts(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match=rf"^waymark\.python: '{NO_FILE}' is not allowed") as refusal:
        await manager.submit({KEY: NO_FILE})
    assert refusal.value.status == 400
    assert manager.launcher.drivers == []
