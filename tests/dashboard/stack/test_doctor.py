from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dashboard.stack.doctor import (
    Level,
    check_account,
    check_extras,
    check_java,
    check_memory,
    check_packages,
    check_ports,
    check_python,
    check_running,
    check_servers,
    check_var,
    examine,
)
from dashboard.stack.environment import PREFERRED_PORTS, create_var
from dashboard.stack.extras import EXTRAS
from dashboard.stack.ports import any_free
from dashboard.stack.record import StackRecord
from tests.other_account import does, needs_root


def test_embedded_servers_have_no_problem_on_this_machine(tmp_path: Path) -> None:
    findings = examine({"WAYMARK_VAR": str(tmp_path / "var"), "PATH": "/usr/bin:/bin"})
    about = {finding.subject for finding in findings}
    assert {"Python", "Java", "Memory", "Disk", "Data directory", "postgres", "redis", "zookeeper", "Ports"} <= about
    problems = [finding for finding in findings if finding.level is Level.PROBLEM and finding.subject != "Memory"]
    assert problems == []
    assert not (tmp_path / "var").exists()


def test_an_external_server_that_does_not_answer_is_named_without_its_password() -> None:
    port = any_free()
    environ = {
        "DATABASE_URL": f"postgresql://ann:secret@127.0.0.1:{port}/x",
        "REDIS_URL": f"redis://:secret@127.0.0.1:{port}/0",
        "ZOOKEEPER_HOSTS": f"127.0.0.1:{port}",
        "WAYMARK_JOBMANAGER_URL": f"http://127.0.0.1:{port}",
        "EMAIL_URL": f"smtp://127.0.0.1:{port}",
    }
    findings = check_servers(environ)
    assert {finding.subject: finding.level for finding in findings} == dict.fromkeys(
        ("postgres", "redis", "zookeeper", "jobmanager", "mail"), Level.PROBLEM
    )
    for finding in findings:
        assert "does not answer" in finding.text
        assert "secret" not in finding.text
        assert "To use the embedded server, unset the variable." in finding.remedy


def test_external_servers_that_answer_are_fine(postgres_dsn: str, redis_url: str) -> None:
    findings = check_servers({"DATABASE_URL": postgres_dsn, "REDIS_URL": redis_url})
    assert {finding.level for finding in findings} == {Level.GOOD}


def test_invalid_java_home_is_a_problem() -> None:
    finding = check_java({"JAVA_HOME": "/nowhere"})
    assert (finding.level, "JAVA_HOME=/nowhere" in finding.text) == (Level.PROBLEM, True)


def test_running_as_root_causes_a_warning() -> None:
    assert check_account(0).level is Level.WARNING
    assert check_account(1000).level is Level.GOOD


@pytest.mark.parametrize(("mode", "level"), [(0o755, Level.WARNING), (0o711, Level.WARNING), (0o700, Level.GOOD)])
def test_a_data_directory_open_to_other_accounts_causes_a_warning(tmp_path: Path, mode: int, level: Level) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var").chmod(mode)
    assert check_var(tmp_path / "var").level is level


def test_a_data_directory_created_by_up_causes_no_warning(tmp_path: Path) -> None:
    create_var(tmp_path / "var")
    assert check_var(tmp_path / "var").level is Level.GOOD


@needs_root
def test_other_account_gets_a_permission_error(session_directory: Path) -> None:
    var = session_directory / "closed"
    create_var(var)
    with StackRecord(var / "run").acquire_lock():
        text = does(lambda: [check_var(var), check_running(var), check_ports({}, var)])
    assert "cannot be written to" in text
    assert f"{var} belongs to another account" in text


def test_an_old_python_is_a_problem() -> None:
    assert check_python((3, 10, 1)).level is Level.PROBLEM
    assert check_python((3, 11, 0)).level is Level.GOOD


def test_package_with_another_version_is_reported(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("django==1.0 \\\n    --hash=sha256:00\n")
    (finding,) = check_packages(tmp_path / "requirements.txt")
    assert finding.level is Level.WARNING
    assert finding.text.endswith("Waymark is tested with 1.0.")


def test_the_extras_are_listed_with_what_they_are_for() -> None:
    findings = check_extras({})
    names = ["jobmanager", "kubernetes", "embedded", "demo"]
    assert [finding.subject for finding in findings] == [f"Extra {name}" for name in names]
    for finding, extra in zip(findings, EXTRAS, strict=True):
        assert (finding.level, finding.text) == (Level.GOOD, f"installed, for {extra.purpose}")


def test_an_extra_that_is_not_installed_is_a_warning_where_up_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (package.module for extra in EXTRAS for package in extra.packages):
        monkeypatch.setitem(sys.modules, module, None)
    here = check_extras({})
    assert [finding.level for finding in here] == [Level.WARNING, Level.GOOD, Level.WARNING, Level.GOOD]
    assert all("not installed" in finding.text for finding in here)
    assert all(f"--extra {extra.name} " in finding.remedy for finding, extra in zip(here, EXTRAS, strict=True))
    elsewhere = {"WAYMARK_JOBMANAGER_URL": "http://x", "ZOOKEEPER_HOSTS": "x:1", "EMAIL_URL": "smtp://x"}
    assert {finding.level for finding in check_extras(elsewhere)} == {Level.GOOD}


def test_an_incomplete_extra_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "websockets", None)
    finding = check_extras({})[0]
    assert finding.level is Level.PROBLEM
    assert finding.text.startswith("incomplete: uvicorn, websockets missing; for ")


def test_java_and_zookeeper_are_not_checked_without_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    about = {finding.subject for finding in examine({"WAYMARK_VAR": str(tmp_path / "var"), "JAVA_HOME": "/nowhere"})}
    assert not {"Java", "zookeeper"} & about


def test_low_memory_is_reported(tmp_path: Path) -> None:
    for gib, level in [(1, Level.PROBLEM), (3, Level.WARNING), (6, Level.GOOD)]:
        (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {gib * 2**20} kB\n")
        assert check_memory(tmp_path / "meminfo").level is level


def test_ports_of_external_parts_do_not_matter(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "x", "REDIS_URL": "x", "ZOOKEEPER_HOSTS": "x", "WAYMARK_JOBMANAGER_URL": "x"}
    text = check_ports({**environ, "EMAIL_URL": "x"}, tmp_path)[0].text
    assert not any(f"{PREFERRED_PORTS[name]} ({name})" in text for name in ("redis", "zookeeper", "jobmanager", "mail"))
