"""`manage.py cluster` tests the connection first, and audits every action without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from monitoring.engine.connection import basic, bearer
from monitoring.models import AuditEntry, Cluster
from tests.checkpointing.watched.locations import Location
from tests.dashboard import builders as make
from tests.monitoring.engine.flink_server import FlinkServer, running

pytestmark = pytest.mark.django_db


@pytest.fixture
def flink() -> Iterator[FlinkServer]:
    with running() as server:
        yield server


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("cluster", *arguments, stdout=out)
    return out.getvalue()


def test_a_reachable_cluster_is_added_and_polled(flink: FlinkServer) -> None:
    assert run("add", "production", flink.url + "/", "--labels", "team=a, env=prod") == (
        "Added cluster production (Flink REST API 2.3.0, jobs: 1 RUNNING). Waymark polls it from now on.\n"
    )
    cluster = Cluster.objects.get(name="production")
    assert (cluster.rest_url, cluster.labels) == (flink.url, {"team": "a", "env": "prod"})
    assert AuditEntry.objects.get().action == "cluster.add"
    assert flink.url in run("list")


def test_a_directory_is_added_and_tested(state_root: Path) -> None:
    Location(state_root / "q").run(0, 1)
    assert run("add", "lake", "--directory", str(state_root)) == (
        "Added cluster lake (1 streaming query found). Waymark polls it from now on.\n"
    )
    shown = [line.split(maxsplit=1) for line in run("test", "lake").splitlines()]
    # There are no task managers and no slots.
    assert shown == [["engine", "Spark Structured Streaming"], ["found", "1 streaming query found"]]


def test_a_directory_for_savepoints_is_outside_of_the_watched_one(state_root: Path) -> None:
    Location(state_root / "lake/q").run(0, 1)
    lake = ("lake", "--directory", f"{state_root}/lake")
    with pytest.raises(CommandError, match=r"savepoint_target .* is in the watched directory"):
        run("add", *lake, "--savepoints", f"{state_root}/lake/savepoints")
    run("add", *lake, "--savepoints", f"{state_root}/savepoints/")
    assert Cluster.objects.get().savepoint_target == f"{state_root}/savepoints"
    assert AuditEntry.objects.get().details["now"]["savepoint_target"] == f"{state_root}/savepoints"


def test_secrets_come_from_files_and_are_not_audited(flink: FlinkServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    flink.needs = {"Authorization": bearer("s3cret")}
    run("add", "guarded", flink.url, "--token-file", str(tmp_path / "secret"))
    flink.needs = {"Authorization": basic("ada", "s3cret")}
    run("add", "named", flink.url, "--user", "ada", "--password-file", str(tmp_path / "secret"))
    assert Cluster.objects.get(name="guarded").token.reveal() == "s3cret"
    assert Cluster.objects.get(name="named").password.reveal() == "s3cret"
    assert "s3cret" not in json.dumps(list(AuditEntry.objects.values_list("details", flat=True)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ftp://127.0.0.1"], "url 'ftp://127.0.0.1': An address must begin with http"),
        (["127.0.0.1:8081"], "url '127.0.0.1:8081': An address must begin with http"),
        (["http://user:pw@127.0.0.1"], "url .*An address must not contain a name or a password"),
        (["http://127.0.0.1:1"], "url .*nothing listens there"),
        ([], "url '': An address must begin with http"),
        (["http://127.0.0.1:1", "--every", "0"], "poll_interval_s '0': Enter a number of seconds from 1 to 3600"),
        (["http://127.0.0.1:1", "--labels", "a b"], "labels 'a b': 'a b' is not a label"),
        (["--zookeeper", "zk"], "zookeeper_hosts 'zk': 'zk' is not a server"),
        (["http://127.0.0.1:1", "--token-file", "/gone"], "--token-file: .*No such file"),
    ],
)
def test_command_errors_name_field_value_and_allowed_values(arguments: list[str], expected: str) -> None:
    with pytest.raises(CommandError, match=expected):
        run("add", "x", *arguments)
    assert not Cluster.objects.exists()


def test_a_token_over_plain_http_causes_a_warning(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    output = run("add", "far", "http://no-such-host.invalid", "--token-file", str(tmp_path / "secret"), "--unanswered")
    assert "Warning: The token is sent to no-such-host.invalid without encryption." in output


def test_duplicate_cluster_name_is_refused(flink: FlinkServer) -> None:
    run("add", "one", flink.url)
    with pytest.raises(CommandError, match="name 'one': Cluster with this Name already exists"):
        run("add", "one", flink.url)


def test_unreachable_cluster_can_be_added_explicitly() -> None:
    assert "Added cluster x (no response yet)." in run("add", "x", "http://127.0.0.1:1", "--unanswered")
    with pytest.raises(CommandError, match="must begin with http"):
        run("add", "y", "gopher://127.0.0.1:1", "--unanswered")


def test_connection_test_reports_the_cluster_and_changes_nothing(flink: FlinkServer) -> None:
    run("add", "one", flink.url)
    before = Cluster.objects.values().get()
    output = run("test", "one")
    for line in ("Apache Flink 2.3.0", "25 checkpoints", "1, 4 of 4 slots free", "file:///savepoints", "1 RUNNING"):
        assert line in output
    assert Cluster.objects.values().get() == before
    flink.instead("/overview", "<html>")
    with pytest.raises(CommandError, match="rest_url: A server answers there, but not with Flink's REST API"):
        run("test", "one")


def test_a_paused_cluster_is_not_watched_and_keeps_its_history(flink: FlinkServer) -> None:
    run("add", "one", flink.url)
    run("pause", "one", "--reason", "moved")
    assert (Cluster.objects.get().enabled, Cluster.objects.get().disabled_reason) == (False, "moved")
    run("resume", "one")
    assert (Cluster.objects.get().enabled, Cluster.objects.get().disabled_reason) == (True, "")


def test_removed_cluster_with_jobs_stays_without_its_secrets(now) -> None:
    make.make_cluster(now, "empty")
    make.make_job(make.make_cluster(now, "full", token="s3cret"))
    run("remove", "empty")
    run("remove", "full", "--reason", "sold")
    full = Cluster.objects.get()
    assert (full.name, full.enabled, bool(full.token), full.disabled_reason) == ("full", False, False, "sold")
    assert full.archived_at is not None
    assert "removed" in run("list")
    run("resume", "full")
    assert Cluster.objects.get().archived_at is None


def test_unknown_name_lists_the_known_names() -> None:
    with pytest.raises(CommandError, match=r"There is no cluster 'x'\. The clusters are: none"):
        run("pause", "x")
