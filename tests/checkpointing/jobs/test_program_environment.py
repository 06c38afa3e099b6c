"""Which variables of the job manager's environment a user program gets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.jobs.launching.environment import program_environment
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.settings import InvalidSettings, JobManagerSettings
from checkpointing.main import _local_launcher
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_environment import JobEnvironment
from tests.checkpointing.jobs.running_job_manager import eventually

ALLOWED = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "LD_LIBRARY_PATH", "PYTHONPATH",
           "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "HADOOP_CONF_DIR", "KRB5CCNAME", "HTTPS_PROXY",
           "no_proxy"]  # fmt: skip
OF_STORAGE = ["AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "FSSPEC_SFTP_PASSWORD"]
WAYMARKS_OWN = ["WAYMARK_SECRET_KEYS", "WAYMARK_OIDC_CLIENT_SECRET", "WAYMARK_ADMIN_PASSWORD", "WAYMARK_METRICS_TOKEN",
                "WAYMARK_ALERT_WEBHOOK_SECRET", "WAYMARK_JOBMANAGER_TOKEN", "DATABASE_URL", "REDIS_URL", "EMAIL_URL",
                "DATABASE_URL_FILE"]  # fmt: skip
OTHERS = ["MYAPP_TOKEN", "MYAPP_URL", "GITHUB_TOKEN", "XPATH"]


def test_programs_get_allowed_variables_and_none_of_waymark() -> None:
    environ = {name: name.lower() for name in [*ALLOWED, *OF_STORAGE, *WAYMARKS_OWN, *OTHERS]}

    assert program_environment(environ, ()) == {name: name.lower() for name in ALLOWED}
    assert set(program_environment(environ, ["MYAPP_*"])) == {*ALLOWED, "MYAPP_TOKEN", "MYAPP_URL"}
    assert set(program_environment(environ, ["GITHUB_TOKEN"])) == {*ALLOWED, "GITHUB_TOKEN"}
    assert set(program_environment(environ, ["WAY*", "DATA*", "R*"])) == set(ALLOWED)


@pytest.mark.parametrize(
    ("location", "variables"),
    [
        ("/var/checkpoints", set()),
        ("file:/var/checkpoints", set()),
        ("s3://bucket/checkpoints", {"AWS_SECRET_ACCESS_KEY", "FSSPEC_SFTP_PASSWORD"}),
        ("gs://bucket/checkpoints", {"GOOGLE_APPLICATION_CREDENTIALS", "FSSPEC_SFTP_PASSWORD"}),
        ("abfs://container/checkpoints", {"AZURE_CLIENT_SECRET", "FSSPEC_SFTP_PASSWORD"}),
        ("sftp://host/checkpoints", {"FSSPEC_SFTP_PASSWORD"}),
    ],
)
def test_programs_get_credentials_of_the_storage_of_their_checkpoints_only(
    tmp_path: Path, location: str, variables: set[str]
) -> None:
    settings = JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_STATE": str(tmp_path)})
    settings = replace(settings, savepoint_directory=location)

    launcher = _local_launcher(settings, dict.fromkeys(OF_STORAGE, "secret"), "http://127.0.0.1:1")

    assert launcher._environ.keys() == variables


def test_further_variables_are_named_in_a_setting() -> None:
    settings = JobManagerSettings.from_environ({"WAYMARK_PROGRAM_ENVIRONMENT": "MYAPP_*, GITHUB_TOKEN"})
    assert settings.program_environment == ("MYAPP_*", "GITHUB_TOKEN")


@pytest.mark.parametrize("entry", ["*", "MY APP", "MYAPP=1", "WAYMARK_SECRET_KEY", "WAYMARK_*", "DATABASE_URL"])
def test_an_entry_that_names_no_variable_or_one_of_waymarks_is_refused(entry: str) -> None:
    with pytest.raises(InvalidSettings, match="WAYMARK_PROGRAM_ENVIRONMENT: "):
        JobManagerSettings.from_environ({"WAYMARK_PROGRAM_ENVIRONMENT": f"FINE,{entry}"})


async def test_a_driver_has_no_other_variable_and_those_of_its_job(tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text("import json, os\nprint(json.dumps(dict(os.environ)), 'ready', flush=True)\n")
    own = dict.fromkeys([*WAYMARKS_OWN, *OTHERS], "hidden")
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "HOME": str(tmp_path),
        **own,
        "MYAPP_X": "given",
    }
    launcher = LocalDriverLauncher(
        environ, lambda: Path("/opt/java"), tmp_path, module="stand_in", program_variables=("MYAPP_X",)
    )
    spec = DriverSpec("0" * 32, "job", 1, "p.py", "p:main", (), None, {}, str(tmp_path / "work"), "t", "http://x", 20.0)
    process = launcher.launch(replace(spec, environment=JobEnvironment({"OF_THE_JOB": "told"})))

    log = await eventually(lambda: process.last_log_lines() if "ready" in process.last_log_lines() else "")
    assert "hidden" not in log
    assert all(text in log for text in ('"MYAPP_X": "given"', '"OF_THE_JOB": "told"', f'"HOME": "{tmp_path}"'))
    await process.end(5.0)
