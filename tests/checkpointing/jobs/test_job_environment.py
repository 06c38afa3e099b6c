# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""Environment variables and secrets that a job's configuration gives to its program."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.known_keys import UnknownKey, check_keys
from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.launching.processes import SPEC_NAME, command_line
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.jobs.launching.signature import signature_of
from checkpointing.masking import HIDDEN
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_environment import JobEnvironment
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import ExceptionInfo
from checkpointing.rest.client import RequestRefused
from checkpointing.spark.failure import without_secrets
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

SECRETS = {"waymark.secret.DB_PASSWORD": "hunter2", "waymark.secret-file.KEY": "-----hunter3-----"}
CONFIGURATION = {"waymark.env.STAGE": "production", **SECRETS}
STAND_IN = """\
import json, os
names = ("STAGE", "DB_PASSWORD", "KEY_FILE")
content = open(os.environ["KEY_FILE"]).read()
with open("told.json", "w") as file:
    json.dump({name: os.environ.get(name) for name in names} | {"content": content}, file)
print("ready", flush=True)
import time
time.sleep(60)
"""


def spec(tmp_path: Path, configuration: dict[str, str] | None = None) -> DriverSpec:
    work, environment = str(tmp_path / "work"), JobEnvironment.parse(CONFIGURATION)
    made = DriverSpec("0" * 32, "job", 1, "p.py", "p:main", (), None, configuration or {}, work, "t", "http://x", 20.0)
    return replace(made, environment=environment)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"waymark.env.1X": "a"}, r"waymark\.env\.1X: 'a' is not allowed; a variable's name"),
        ({"waymark.env.": "a"}, "a variable's name"),
        ({"waymark.secret.A-B": "hunter2"}, r"waymark\.secret\.A-B: '\*{6}' is not allowed; a variable's name"),
        ({"waymark.env.PYTHONPATH": "/x"}, "Waymark and PySpark set PYTHONPATH themselves"),
        ({"waymark.env.WAYMARK_CLASS_ARCHIVE": "/x"}, "set WAYMARK_CLASS_ARCHIVE themselves"),
        ({"waymark.env.A_FILE": "1", "waymark.secret-file.A": "2"}, "another key sets A_FILE, too"),
        ({"waymark.secret.A": "\0"}, "without null characters"),
    ],
)
def test_a_variable_that_cannot_be_set_is_refused(configuration: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        JobEnvironment.parse(configuration)


async def test_a_program_gets_its_jobs_variables_secrets_and_files(tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    launcher = LocalDriverLauncher(environ, lambda: Path("/opt/java"), tmp_path / "state", module="stand_in")

    process = launcher.launch(spec(tmp_path))

    await eventually(lambda: "ready" in process.last_log_lines())
    text = json.loads((tmp_path / "work" / "told.json").read_text())
    key_file = Path(text["KEY_FILE"])
    assert text == {
        "STAGE": "production",
        "DB_PASSWORD": "hunter2",
        "KEY_FILE": str(key_file),
        "content": "-----hunter3-----",
    }
    assert (stat.S_IMODE(key_file.stat().st_mode), stat.S_IMODE(key_file.parent.stat().st_mode)) == (0o600, 0o700)
    specification = (tmp_path / "work" / SPEC_NAME).read_text()
    assert "hunter" not in specification + "".join(command_line(process.pid))
    await process.end(5.0)
    launcher.temporaries.sweep()
    assert not key_file.exists()


def test_a_spare_waits_with_the_same_secrets_only(tmp_path: Path) -> None:
    asked = spec(tmp_path)
    other = replace(asked, environment=JobEnvironment.parse({**CONFIGURATION, "waymark.secret.DB_PASSWORD": "other"}))
    read_back = DriverSpec.from_json(json.loads(json.dumps(asked.to_json())))

    assert signature_of(asked) == signature_of(replace(asked, attempt=2)) != signature_of(other)
    assert signature_of(read_back) is None, "the secrets of an adopted driver are not known"
    assert "hunter" not in f"{asked!r} {signature_of(asked)!r}"


@pytest.mark.parametrize("key", SECRETS)
def test_a_driver_in_the_cluster_gets_no_secrets(tmp_path: Path, key: str) -> None:
    site = Site(storage_is_shared=True, address="http://jm.internal:8081")
    launcher = LocalDriverLauncher({}, lambda: Path("/opt"), tmp_path, site=site)
    place = {"spark.master": "yarn", "spark.submit.deployMode": "cluster"}
    graph = JobGraph("0" * 32, "job", "jar", "p:main", configuration={**place, "waymark.env.STAGE": "x"})
    launcher.check(graph)

    with pytest.raises(InvalidConfiguration, match=r"secretKeyRef") as refusal:
        launcher.check(replace(graph, configuration={**place, key: "hunter2"}))
    assert "hunter2" not in str(refusal.value)


def test_failures_are_reported_without_the_secrets_that_they_quote(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("-----BEGIN-----\nhunter3\n-----END-----\n")
    environ = {"DB_PASSWORD": "hunter2", "KEY_FILE": str(tmp_path / "key"), "OTHER": "hunter4", "SHORT": "abc"}
    given = JobEnvironment(
        {}, {"DB_PASSWORD": HIDDEN, "SHORT": HIDDEN, "GONE": HIDDEN}, {"KEY": HIDDEN, "LOST": HIDDEN}
    )
    info = ExceptionInfo("ValueError", "refused hunter2 of abc", "ValueError: refused hunter2\n  with hunter3", 1)

    shown = without_secrets(info, given.secrets_in(environ))

    assert (shown.message, shown.stacktrace) == (
        f"refused {HIDDEN} of abc",
        f"ValueError: refused {HIDDEN}\n  with {HIDDEN}",
    )


def test_executors_get_the_variables_and_not_the_secrets(tmp_path: Path) -> None:
    settings = session_settings(
        WorkDirectory(tmp_path), 2, {"spark.master": "spark://127.0.0.1:7077", "waymark.env.STAGE": "production"}
    )
    assert settings["spark.executorEnv.STAGE"] == "production"
    assert "spark.executorEnv.STAGE" not in session_settings(WorkDirectory(tmp_path), 2, {"waymark.env.STAGE": "x"})


def test_the_keys_are_known() -> None:
    check_keys(CONFIGURATION)
    with pytest.raises(UnknownKey):
        check_keys({"waymark.envs.STAGE": "x"})


async def test_secrets_are_in_no_answer_but_the_launch_record(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(CONFIGURATION)
    await manager.checkpoint(job_id)

    paths = ["", "/config", "/checkpoints", "/checkpoints/config", "/exceptions", "/jobmanager/config"]
    answers = json.dumps([await manager.get_any(f"/jobs/{job_id}{path}") for path in paths])

    assert "hunter" not in answers
    assert '"waymark.env.STAGE": "production"' in answers
    assert (await manager.get(f"/jobs/{job_id}/launch"))["flinkConfiguration"] == CONFIGURATION
    asked: Any = manager.launcher.specs[0]
    assert asked.environment.secrets == {"DB_PASSWORD": "hunter2"}
    assert not asked.configuration.keys() & SECRETS.keys()


async def test_a_wrong_name_is_refused_before_anything_starts(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match=r"waymark\.secret\.A B: '\*{6}' is not allowed") as refusal:
        await manager.submit({"waymark.secret.A B": "hunter2"})
    assert refusal.value.status == 400
    assert manager.launcher.drivers == []


def test_a_spare_waits_with_the_same_heartbeat_interval_only(tmp_path: Path) -> None:
    """The heartbeat interval depends on the checkpoint timeout, and cannot change in a running JVM."""
    asked = spec(tmp_path)

    def of(timeout: str) -> DriverSpec:
        return replace(asked, configuration={**asked.configuration, "execution.checkpointing.timeout": timeout})

    assert signature_of(of("8s")) != signature_of(of("10 min")) == signature_of(of("20 min"))
