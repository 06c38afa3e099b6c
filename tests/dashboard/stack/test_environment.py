from __future__ import annotations

import stat
from pathlib import Path

import pytest

from checkpointing.java import JavaInstallation
from dashboard.stack.composition import STOP_ORDER, compose
from dashboard.stack.environment import InvalidEnvironment, build, without_password
from dashboard.stack.ports import any_free
from monitoring.notify.mail.address import parse_server

JAVA = JavaInstallation(Path("/java"), 17, "a test")


def test_everything_is_embedded_when_nothing_is_set(tmp_path: Path) -> None:
    environment = build({}, tmp_path, JAVA)
    assert environment.external == ()
    assert [part.name for part in compose(environment, demo=False)] == [
        "postgres", "redis", "zookeeper", "setup", "mail", "jobmanager", "worker", "beat", "web",
    ]  # fmt: skip
    assert {"DATABASE_URL", "REDIS_URL", "ZOOKEEPER_HOSTS", "EMAIL_URL"} <= set(environment.variables)


def test_each_part_comes_after_what_it_needs_and_has_its_place_in_the_stop_order(tmp_path: Path) -> None:
    parts = compose(build({}, tmp_path, JAVA), demo=True)
    names = [part.name for part in parts]
    for part in parts:
        assert all(names.index(need) < names.index(part.name) for need in part.after)
    assert {part.name for part in parts if not part.step} == set(STOP_ORDER)


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("DATABASE_URL", "postgresql://db.example/waymark", "postgres"),
        ("REDIS_URL", "redis://cache.example/0", "redis"),
        ("ZOOKEEPER_HOSTS", "zk1:2181,zk2:2181", "zookeeper"),
        ("WAYMARK_JOBMANAGER_URL", "http://jobs.example:8081", "jobmanager"),
        ("EMAIL_URL", "smtp://mail.example", "mail"),
    ],
)
def test_a_part_whose_variable_is_set_is_not_started(tmp_path: Path, variable: str, value: str, name: str) -> None:
    environment = build({variable: value}, tmp_path, JAVA)
    assert [(part.name, part.address) for part in environment.external] == [(name, value)]
    assert name not in [part.name for part in compose(environment, demo=False)]
    assert variable not in environment.variables  # child processes inherit the caller's variable


def test_an_external_job_manager_is_the_one_that_is_watched(tmp_path: Path) -> None:
    environment = build({"WAYMARK_JOBMANAGER_URL": "http://jobs.example:8081"}, tmp_path, JAVA)
    assert environment.jobmanager_url == "http://jobs.example:8081"
    (tmp_path / "url").write_text("https://jobs.example\n")
    environment = build({"WAYMARK_JOBMANAGER_URL_FILE": str(tmp_path / "url")}, tmp_path, JAVA)
    assert environment.jobmanager_url == "https://jobs.example"


def test_the_history_pipeline_is_on_for_the_embedded_job_manager_unless_disabled(tmp_path: Path) -> None:
    def pipeline(environ: dict[str, str]) -> str | None:
        return build(environ, tmp_path, JAVA).variables.get("WAYMARK_HISTORY_PIPELINE")

    assert pipeline({}) == "on"
    assert pipeline({"WAYMARK_HISTORY_PIPELINE": "off"}) == "off"
    assert pipeline({"WAYMARK_JOBMANAGER_URL": "http://jobs.example:8081"}) is None


def test_a_password_is_never_shown() -> None:
    assert without_password("postgresql://ann:secret@db:5432/x") == "postgresql://ann:***@db:5432/x"
    assert without_password("zk1:2181,zk2:2181") == "zk1:2181,zk2:2181"


def test_the_secret_key_is_created_once_with_private_permissions(tmp_path: Path) -> None:
    kept = Path(build({}, tmp_path, JAVA).variables["WAYMARK_SECRET_KEY_FILE"])
    key = kept.read_text()
    assert len(key) >= 50
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    build({}, tmp_path, JAVA)
    assert kept.read_text() == key


def test_configured_secret_key_is_used(tmp_path: Path) -> None:
    assert "WAYMARK_SECRET_KEY_FILE" not in build({"WAYMARK_SECRET_KEY": "x"}, tmp_path, JAVA).variables


def test_the_job_managers_token_is_created_once_with_private_permissions(tmp_path: Path) -> None:
    environment = build({}, tmp_path, JAVA)
    kept = Path(environment.variables["WAYMARK_JOBMANAGER_TOKEN_FILE"])
    assert environment.jobmanager_token == kept.read_text()
    assert len(environment.jobmanager_token) >= 50
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert build({}, tmp_path, JAVA).jobmanager_token == environment.jobmanager_token
    assert environment.jobmanager_token not in repr(environment)


def test_a_token_that_is_set_is_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    by_file = build({"WAYMARK_JOBMANAGER_TOKEN_FILE": str(tmp_path / "token")}, tmp_path, JAVA)
    by_name = build({"WAYMARK_JOBMANAGER_TOKEN": "by name"}, tmp_path, JAVA)
    assert (by_file.jobmanager_token, by_name.jobmanager_token) == ("from a file", "by name")
    assert not (tmp_path / "jobmanager-token").exists()


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidEnvironment, match="WAYMARK_JOBMANAGER_TOKEN_FILE: '/nowhere' is not allowed"):
        build({"WAYMARK_JOBMANAGER_TOKEN_FILE": "/nowhere"}, tmp_path, JAVA)


def test_external_job_manager_does_not_get_our_token(tmp_path: Path) -> None:
    assert build({"WAYMARK_JOBMANAGER_URL": "http://jobs.example:8081"}, tmp_path, JAVA).jobmanager_token == ""


def test_the_mail_server_has_a_password_that_stays(tmp_path: Path) -> None:
    first, second = (build({}, tmp_path, JAVA).variables["EMAIL_URL"] for _ in range(2))
    assert first == second
    assert parse_server(first).user == "waymark"
    assert parse_server(first).password == (tmp_path / "mail-password").read_text()


def test_requested_port_is_used(tmp_path: Path) -> None:
    port = any_free()
    assert build({"WAYMARK_PORT": str(port)}, tmp_path, JAVA).web_url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("text", ["0", "70000", "web"])
def test_invalid_port_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidEnvironment, match=f"WAYMARK_PORT: '{text}'"):
        build({"WAYMARK_PORT": text}, tmp_path, JAVA)


def test_addresses_stay_the_same_over_a_restart(tmp_path: Path) -> None:
    first, second = (build({}, tmp_path, JAVA) for _ in range(2))
    assert first.ports == second.ports
    assert first.variables == second.variables
