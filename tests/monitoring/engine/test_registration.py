"""Adding a cluster by hand: what answers there is looked at first."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_httpserver import HTTPServer

from monitoring.models import AuditEntry, Cluster

pytestmark = pytest.mark.django_db

SAMPLES = Path(__file__).resolve().parents[2] / "flink_samples"


def flink(httpserver: HTTPServer, token: str = "") -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    for path, name in (("/overview", "overview.json"), ("/jobs/overview", "jobs_overview.json")):
        httpserver.expect_request(path, headers=headers).respond_with_json(json.loads((SAMPLES / name).read_text()))
    return httpserver.url_for("").rstrip("/")


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("cluster", *arguments, stdout=out)
    return out.getvalue()


def test_a_cluster_that_answers_is_watched_from_now_on(httpserver: HTTPServer) -> None:
    url = flink(httpserver)
    assert run("add", "production", url + "/") == (
        "production: Flink REST API 2.3.0 with 1 job. It is watched from now on.\n"
    )
    assert Cluster.objects.get(name="production").rest_url == url
    assert AuditEntry.objects.get().action == "cluster.add"
    assert url in run("list")


def test_its_token_comes_from_a_file_and_is_not_audited(httpserver: HTTPServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    run("add", "guarded", flink(httpserver, "s3cret"), "--token-file", str(tmp_path / "token"))
    assert Cluster.objects.get(name="guarded").token.reveal() == "s3cret"
    assert "s3cret" not in json.dumps(AuditEntry.objects.get().details)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://127.0.0.1", "url: 'ftp://127.0.0.1' is not allowed; http"),
        ("127.0.0.1:8081", "url: "),
        ("http://user:pw@127.0.0.1", "without user"),
        ("http://127.0.0.1:1", "does not answer as Flink's REST API"),
    ],
)
def test_an_address_that_is_none_is_refused_with_the_reason(url: str, said: str) -> None:
    with pytest.raises(CommandError, match=said.replace("'", ".")):
        run("add", "x", url)
    assert not Cluster.objects.exists()


def test_a_server_that_is_not_flink_is_refused(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/overview").respond_with_data("<html>hello</html>")
    with pytest.raises(CommandError, match="does not answer as Flink's REST API"):
        run("add", "x", httpserver.url_for(""))


def test_a_name_is_given_once(httpserver: HTTPServer) -> None:
    url = flink(httpserver)
    run("add", "one", url)
    with pytest.raises(CommandError, match="name: 'one' is not allowed; a name that no other cluster has"):
        run("add", "one", url)


def test_a_paused_cluster_is_not_watched_and_keeps_its_history(httpserver: HTTPServer) -> None:
    run("add", "one", flink(httpserver))
    run("pause", "one")
    assert not Cluster.objects.get().enabled
    run("resume", "one")
    assert Cluster.objects.get().enabled


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(CommandError, match="name: 'x' is not a cluster; there are: none"):
        run("pause", "x")
