"""The test of a connection before a cluster is stored: what answers, or which field is wrong. With real servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from monitoring import outbound
from monitoring.engine import examination, silence
from monitoring.engine.connection import basic, bearer
from monitoring.engine.examination import Problem, examine, unencrypted_secret
from monitoring.engine.probe import Found
from monitoring.models import Authentication, Cluster
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.secret import Secret, seal
from tests.certificates import Authority
from tests.monitoring.engine.flink_server import FlinkServer, running

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def flink() -> Iterator[FlinkServer]:
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def long_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "LIMIT_S", 30)


@pytest.fixture(autouse=True)
def reachable_state(settings: Settings) -> None:
    """Let the cluster's state be below directories that Waymark can read."""
    settings.STATE_ROOTS = ("/checkpoints", "/savepoints")


@pytest.mark.parametrize(
    ("roots", "where"),
    [
        (("/checkpoints",), "file:///savepoints"),
        (("/elsewhere",), "file:///checkpoints or file:///savepoints"),
        ((), "file:///checkpoints or file:///savepoints"),
        (("/",), ""),
    ],
)
def test_a_remark_names_state_directories_that_waymark_cannot_read(
    flink: FlinkServer, settings: Settings, roots: tuple[str, ...], where: str
) -> None:
    settings.STATE_ROOTS = roots
    found = look(flink.url)
    assert isinstance(found, Found)
    text = [remark for remark in found.remarks if remark.code is EngineReason.STATE_NOT_REACHED]
    assert text == ([EngineReason.STATE_NOT_REACHED(where=where)] if where else [])


def test_an_unknown_state_directory_causes_a_remark_without_configured_roots(
    flink: FlinkServer, settings: Settings
) -> None:
    flink.instead("/jobmanager/config", "[]")
    for roots, says in (((), True), (("/somewhere",), False)):
        settings.STATE_ROOTS = roots
        found = look(flink.url)
        assert isinstance(found, Found)
        assert (EngineReason.STATE_NOT_REACHED(where=EngineReason.ITS_STATE()) in found.remarks) is says


def look(url: str, **fields: object) -> Found | Problem:
    return examine(Cluster(name="c", rest_url=url, request_limit_s=30, **fields), lambda: NOW)


def refused(url: str, **fields: object) -> Problem:
    outcome = look(url, **fields)
    assert isinstance(outcome, Problem), outcome
    return outcome


def test_the_examination_reports_version_jobs_and_limits(flink: FlinkServer) -> None:
    flink.instead("/", "<html>", Date="Sat, 21 Nov 2026 12:00:30 GMT")
    found = look(flink.url)
    assert isinstance(found, Found)
    assert (found.version.text, found.commit, found.engine) == ("2.3.0", "c0f8d1a", "Apache Flink")
    assert (found.jobs, found.taskmanagers, found.slots_total) == ({"RUNNING": 1}, 1, 4)
    assert (found.history_length, found.checkpoint_directory) == (25, "file:///checkpoints")
    assert (found.savepoint_directory, found.can_submit, found.can_cancel) == ("file:///savepoints", True, True)
    assert (found.clock_s, found.remarks) == (30, (EngineReason.CLOCK_AHEAD(seconds=30),))
    assert str(found.remarks[0]) == "Its clock is 30 s ahead of Waymark's."
    assert str(found.identity) == "path /flink, cluster-id /demo at zk1:2181,zk2:2181"
    assert str(found.reason) == "Flink REST API 2.3.0, jobs: 1 RUNNING"


def test_missing_facts_are_unknown(flink: FlinkServer) -> None:
    flink.instead("/jobmanager/config", '{"errors": ["no"]}', status=404)
    flink.instead("/config", "{}")
    found = look(flink.url)
    assert isinstance(found, Found)
    assert (found.history_length, found.can_submit, found.clock_s, found.identity) == (None, None, None, None)
    assert found.remarks[0] == EngineReason.NO_CONFIGURATION()


def test_a_cluster_without_submission_and_cancellation_causes_remarks(flink: FlinkServer) -> None:
    flink.instead("/config", '{"features": {"web-submit": false, "web-cancel": false}}')
    found = look(flink.url)
    assert isinstance(found, Found)
    assert found.remarks == (EngineReason.NO_PROGRAMS(), EngineReason.NO_CANCEL())


@pytest.mark.parametrize(
    ("url", "authentication", "remark"),
    [
        ("http://flink.example:8081", "bearer", EngineReason.TOKEN_UNENCRYPTED(host="flink.example")),
        ("http://10.1.2.3:8081", "basic", EngineReason.PASSWORD_UNENCRYPTED(host="10.1.2.3")),
        ("http://[fd12::1]:8081", "bearer", EngineReason.TOKEN_UNENCRYPTED(host="fd12::1")),
        ("http://flink.example:8081", "none", None),
        ("https://flink.example:8081", "bearer", None),
        ("http://127.0.0.1:8081", "bearer", None),
        ("http://[::1]:8081", "bearer", None),
        ("http://localhost:8081", "basic", None),
        ("", "bearer", None),
    ],
)
def test_a_secret_that_is_sent_without_tls_to_another_machine_causes_a_remark(
    url: str, authentication: str, remark: Reason | None
) -> None:
    assert unencrypted_secret(authentication, url) == remark


def test_the_remark_is_among_those_of_a_test(flink: FlinkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # treat the test's server as one on another machine
    monkeypatch.setattr(outbound, "is_this_machine", lambda host: False)
    found = look(flink.url, authentication="bearer", token=Secret("s3cret"))
    assert isinstance(found, Found)
    assert found.remarks[-1] == EngineReason.TOKEN_UNENCRYPTED(host="127.0.0.1")


@pytest.mark.parametrize(
    ("version", "remark"),
    [
        ("1.14.6", EngineReason.VERSION_TOO_OLD(version="1.14.6", oldest="1.15")),
        ("9.9", EngineReason.VERSION_TOO_NEW(version="9.9", newest="2.3")),
        ("1.17.2", None),
        ("SNAPSHOT", EngineReason.VERSION_UNREADABLE(version="SNAPSHOT")),
    ],
)
def test_a_version_outside_of_the_tested_ones_causes_a_remark(
    flink: FlinkServer, version: str, remark: Reason | None
) -> None:
    overview = '{"taskmanagers":1,"slots-total":4,"slots-available":4,"jobs-running":0,"flink-version":"%s"}'
    flink.instead("/overview", overview % version)
    found = look(flink.url)
    assert isinstance(found, Found)
    clock = (EngineReason.CLOCK_AHEAD, EngineReason.CLOCK_BEHIND)
    assert [each for each in found.remarks if each.code not in clock] == ([remark] if remark else [])


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        (
            "/overview",
            "<!doctype html><p>Welcome",
            200,
            "not with Flink's REST API. The answer to /overview is a web page",
        ),
        ("/overview", '{"status": "UP"}', 200, "not with Flink's REST API. /overview has no field 'flink-version'"),
        ("/overview", "[1, 2]", 200, "is a list, not an object"),
        ("/overview", "hello", 200, "not JSON"),
        ("/overview", '{"errors": ["?"]}', 404, "it has no /overview"),
        ("/jobs/overview", '{"jobs": 3}', 200, "jobs is a number"),
    ],
)
def test_a_server_of_something_else(flink: FlinkServer, path: str, body: str, status: int, expected: str) -> None:
    flink.instead(path, body, status)
    problem = refused(flink.url)
    assert (problem.field, problem.passing) == ("rest_url", False)
    assert expected in str(problem.reason)


def test_a_redirect_is_not_followed_and_its_target_is_named(flink: FlinkServer) -> None:
    flink.instead("/overview", "", 302, Location="https://flink.example/eu/overview")
    problem = refused(flink.url)
    assert (problem.field, problem.passing) == ("rest_url", False)
    assert "redirects to https://flink.example/eu/overview; enter that address instead" in str(problem.reason)
    assert flink.asked == ["/overview"]


def test_a_redirect_to_a_log_in_is_not_an_address_to_enter(flink: FlinkServer) -> None:
    flink.instead("/overview", "", 302, Location="https://sso.example/login?next=flink")
    problem = refused(flink.url)
    assert (problem.field, problem.passing) == ("rest_url", False)
    assert problem.reason == EngineReason.LOG_IN_PAGE(location="https://sso.example/login?next=flink")


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ('{"errors": ["boom"]}', 500, "with an error: boom"),
        ("oops", 501, "with an error: The server responds to /overview with HTTP 501."),
        ("<html>Bad Gateway", 502, "A proxy answers there, but the cluster behind it does not (HTTP 502)."),
        ("<html>Gateway Time-out", 504, "A proxy answers there, but the cluster behind it does not (HTTP 504)."),
    ],
)
def test_a_cluster_with_errors_may_be_saved(flink: FlinkServer, body: str, status: int, expected: str) -> None:
    flink.instead("/overview", body, status)
    problem = refused(flink.url)
    assert (problem.field, problem.passing) == ("rest_url", True)
    assert expected in str(problem.reason)


def test_a_cluster_that_is_still_starting_may_be_saved(flink: FlinkServer) -> None:
    flink.instead(
        "/overview", '{"errors": ["Service temporarily unavailable due to an ongoing leader election."]}', 503
    )
    problem = refused(flink.url)
    assert (problem.field, problem.passing) == ("rest_url", True)
    assert "not ready: Service temporarily unavailable" in str(problem.reason)


def test_a_missing_log_in_is_reported_at_its_field(flink: FlinkServer) -> None:
    flink.needs = {"Authorization": bearer("right")}
    assert refused(flink.url).field == "authentication"
    assert refused(flink.url).reason == EngineReason.LOG_IN_NEEDED(status=401)
    wrong = refused(flink.url, authentication=Authentication.BEARER, token="wrong")
    assert (wrong.field, wrong.reason) == ("token", EngineReason.TOKEN_REFUSED(status=401))
    assert isinstance(look(flink.url, authentication=Authentication.BEARER, token="right"), Found)


def test_name_and_password(flink: FlinkServer) -> None:
    flink.needs = {"Authorization": basic("ada", "pä:ss")}
    fields = {"authentication": Authentication.BASIC, "username": "ada"}
    assert refused(flink.url, **fields, password="no").field == "password"
    assert isinstance(look(flink.url, **fields, password="pä:ss"), Found)


def test_a_secret_that_no_key_decrypts_is_reported_at_its_field(flink: FlinkServer, settings: Settings) -> None:
    fields = {"client_key": Secret.from_stored(seal("key")), "client_certificate": "x"}
    settings.SECRET_KEY = "another one"
    problem = refused(flink.url, **fields)
    assert problem.field == "client_key"
    assert "cannot be decrypted with the configured keys" in str(problem.reason)
    assert flink.asked == []


def test_a_token_is_sent_only_if_the_authentication_uses_it(flink: FlinkServer) -> None:
    """A stored token is not sent if the authentication does not use it."""
    flink.needs = {"Authorization": bearer("right")}
    assert refused(flink.url, token="right").field == "authentication"


def test_a_closed_port_is_reported_at_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        problem = refused(f"http://127.0.0.1:{free.getsockname()[1]}")
    assert (problem.field, problem.passing) == ("rest_url", True)
    assert "nothing listens there" in str(problem.reason)


def test_no_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        problem = examine(
            Cluster(rest_url=f"http://127.0.0.1:{silent.getsockname()[1]}", request_limit_s=0.3), lambda: NOW
        )
    assert isinstance(problem, Problem)
    assert (problem.field, problem.passing) == ("rest_url", True)
    assert "did not answer /overview within 0.3 s" in str(problem.reason)


def test_a_name_that_does_not_resolve() -> None:
    problem = refused("http://no-such-host.invalid:8081")
    assert (problem.field, problem.passing) == ("rest_url", True)
    assert "The name no-such-host.invalid does not resolve" in str(problem.reason)


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://[::ffff:169.254.169.254]", "http://[fe80::1]:8081"])
def test_an_address_that_is_not_allowed_is_not_connected_to(url: str) -> None:
    problem = refused(url)
    assert (problem.field, problem.passing) == ("rest_url", False)
    assert "WAYMARK_OUTBOUND_ALLOW" in str(problem.reason)


def test_a_name_that_resolves_to_a_forbidden_address_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async def metadata(_host: str, _port: int) -> list[str]:
        return ["169.254.169.254"]

    monkeypatch.setattr("monitoring.outbound.resolve_async", metadata)
    problem = refused("http://flink.example:8081")
    assert problem.field == "rest_url"
    assert str(problem.reason).startswith(
        "flink.example is 169.254.169.254, the address at which clouds issue credentials"
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("127.0.0.1:8081", "must begin with http"),
        ("http://a:b@c", "a name or a password"),
        ("http://a b", "cannot contain spaces"),
    ],
)
def test_an_invalid_address_is_refused(url: str, expected: str) -> None:
    problem = refused(url)
    assert (problem.field, expected in str(problem.reason)) == ("rest_url", True)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def test_tls_with_a_private_authority(authority: Authority, tmp_path: Path) -> None:
    with running(authority.sign().server_context(tmp_path)) as flink:
        assert isinstance(look(flink.url, ca_bundle=authority.pem), Found)
        assert isinstance(look(flink.url, ca_bundle=f"# Zertifizierungsstelle für 内部\n{authority.pem}"), Found)


def test_untrusted_certificates_are_distinguished(authority: Authority, tmp_path: Path) -> None:
    cases = {
        "expired": (authority.sign(lasts=timedelta(hours=-1)), authority.pem, "rest_url", "has expired"),
        "host": (authority.sign(("other.example",)), authority.pem, "rest_url", "is for another host"),
        "issuer": (authority.sign(), "", "ca_bundle", "an authority that is not trusted"),
        "another": (authority.sign(), Authority("Another").pem, "ca_bundle", "an authority that is not trusted"),
    }
    for name, (signed, bundle, field, text) in cases.items():
        (tmp_path / name).mkdir()
        with running(signed.server_context(tmp_path / name)) as flink:
            problem = refused(flink.url, ca_bundle=bundle)
        assert (problem.field, problem.passing, text in str(problem.reason)) == (field, False, True), (name, problem)


def test_mutual_tls(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_CONNECT_S", 30)
    monkeypatch.setattr(silence, "_LATE_ERROR_LIMIT_S", 30)
    ours, foreign = authority.sign(("waymark",)), Authority("Foreign").sign(("waymark",))
    with running(authority.sign().server_context(tmp_path, clients=authority)) as flink:
        trusted = {"ca_bundle": authority.pem}
        shown = {"client_certificate": ours.certificate, "client_key": ours.key}
        assert isinstance(look(flink.url, **trusted, **shown), Found)
        problem = refused(flink.url, **trusted)
        assert (problem.field, "requires a client certificate" in str(problem.reason)) == (
            "client_certificate",
            True,
        ), problem
        problem = refused(flink.url, **trusted, client_certificate=foreign.certificate, client_key=foreign.key)
        assert problem.field == "client_certificate"


def test_certificates_and_keys_that_are_none(authority: Authority) -> None:
    one, other = authority.sign(("a",)), authority.sign(("b",))
    cases = [
        ({"ca_bundle": "hello"}, "ca_bundle", "not certificates in PEM format"),
        ({"client_certificate": one.certificate}, "client_key", "one of them is missing"),
        ({"client_key": one.key}, "client_certificate", "one of them is missing"),
        ({"client_certificate": "x", "client_key": one.key}, "client_certificate", "not a certificate in PEM format"),
        ({"client_certificate": one.certificate, "client_key": "x"}, "client_key", "not a private key in PEM format"),
        ({"client_certificate": one.certificate, "client_key": other.key}, "client_key", "do not belong together"),
    ]
    for fields, field, text in cases:
        problem = refused("https://127.0.0.1:1", **fields)
        assert (problem.field, text in str(problem.reason)) == (field, True), problem
        assert one.key not in str(problem.reason)


def test_http_and_https_are_distinguished(flink: FlinkServer, authority: Authority, tmp_path: Path) -> None:
    problem = refused(flink.url.replace("http://", "https://"))
    assert (problem.field, "does not speak TLS; is it meant to be http://?" in str(problem.reason)) == (
        "rest_url",
        True,
    )
    with running(authority.sign().server_context(tmp_path)) as guarded:
        problem = refused(guarded.url.replace("https://", "http://"))
    assert (problem.field, problem.passing) == ("rest_url", True)
    assert "closed it without a response. Is it meant to be https://?" in str(problem.reason)


def test_an_answer_that_breaks_off() -> None:
    problem = answered_with(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
    assert (problem.field, problem.passing) == ("rest_url", True)
    assert str(problem.reason).endswith("closed the connection in the middle of its response.")


def test_a_server_with_another_protocol_is_refused() -> None:
    problem = answered_with(b"220 mail.example ESMTP\r\n")
    assert problem.field == "rest_url"
    assert str(problem.reason).endswith("answers with something that is not HTTP; is it meant to be https://?")


def answered_with(expected: bytes) -> Problem:
    """Return the problem with a server that sends `said` to the first client, reads, and closes the connection."""

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(expected)
            connection.recv(1000)

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        problem = refused(f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread.join(5)
    return problem
