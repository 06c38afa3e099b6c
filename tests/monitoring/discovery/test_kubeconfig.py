"""A kubeconfig that a person enters: what it may contain, and the service account of a pod."""

from __future__ import annotations

import json

import pytest

from monitoring.engine.connection import bearer
from monitoring.engine.errors import RequestNotSent
from monitoring.kubernetes.credentials import connection_of, read_kubeconfig
from monitoring.models import DiscoverySource
from monitoring.reasons.discoveries import DiscoveryReason
from tests.certificates import Authority
from tests.monitoring.discovery.played_kubernetes import kubeconfig

SERVER = "https://10.0.0.1:6443"


def changed(kind: str = "users", **fields: object) -> str:
    config = json.loads(kubeconfig(SERVER))
    entry = config[kind][0]
    entry[kind.removesuffix("s")] = {**entry[kind.removesuffix("s")], **fields}
    return json.dumps(config)


def reason_of(text: str):
    with pytest.raises(RequestNotSent) as refused:
        read_kubeconfig(text)
    return refused.value.reason


def test_a_token_is_sent_to_the_server_of_the_current_context():
    connection = read_kubeconfig(kubeconfig(f"{SERVER}/", token="abc"))
    assert (connection.url, connection.authorization) == (SERVER, "Bearer abc")
    assert "abc" not in repr(connection)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("users", "exec", {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": ["/tmp/x"]}),
        ("users", "auth-provider", {"name": "gcp", "config": {"cmd-path": "/bin/sh"}}),
        ("users", "tokenFile", "/etc/passwd"),
        ("users", "client-certificate", "/etc/passwd"),
        ("users", "client-key", "/etc/shadow"),
        ("users", "as", "system:masters"),
        ("clusters", "certificate-authority", "/etc/passwd"),
        ("clusters", "insecure-skip-tls-verify", True),
        ("clusters", "proxy-url", "http://proxy:3128"),
        ("clusters", "tls-server-name", "another"),
    ],
)
def test_programs_files_and_unverified_servers_are_refused_by_name(kind, field, value):
    reason = reason_of(changed(kind, **{field: value}))
    assert reason.code is DiscoveryReason.FIELD_REFUSED
    assert reason.args["field"] == f"{kind.removesuffix('s')}.{field}"
    assert "data" in reason.args["allowed"]


def test_fields_that_change_nothing_are_allowed():
    read_kubeconfig(changed("clusters", extensions=[], **{"insecure-skip-tls-verify": False}))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", DiscoveryReason.NOT_YAML),
        ("- a", DiscoveryReason.NOT_YAML),
        ("a: [", DiscoveryReason.NOT_YAML),
        ("!!python/object/apply:os.system ['true']", DiscoveryReason.NOT_YAML),
        ("[" * 5000, DiscoveryReason.NOT_YAML),
        ("x" * 100_001, DiscoveryReason.TOO_LARGE),
        ("current-context: none", DiscoveryReason.NOT_NAMED),
        (changed("clusters", server=None), DiscoveryReason.FIELD_MISSING),
        (changed("users", token=["a"]), DiscoveryReason.NOT_A_TEXT),
        (changed("users", token="a\r\nHost: b"), DiscoveryReason.NOT_A_TEXT),
        (changed("clusters", **{"certificate-authority-data": "?"}), DiscoveryReason.NOT_BASE64),
        (changed("clusters", **{"certificate-authority-data": "aGVsbG8="}), DiscoveryReason.BAD_TLS),
        (changed("users", **{"client-certificate-data": "aGVsbG8="}), DiscoveryReason.BAD_TLS),
    ],
)
def test_what_is_wrong_is_named(text, code):
    assert reason_of(text).code is code


@pytest.mark.parametrize("server", ["http://169.254.169.254", "file:///etc/passwd", "https://a:b@10.0.0.1"])
def test_the_address_is_checked_like_that_of_a_cluster(server):
    reason_of(kubeconfig(server))


def test_without_a_service_account_there_are_no_credentials(tmp_path):
    source = DiscoverySource(name="here", in_cluster=True)
    with pytest.raises(RequestNotSent) as refused:
        connection_of(source, tmp_path)
    assert refused.value.reason == DiscoveryReason.IN_NO_CLUSTER()


def test_the_mounted_service_account_is_read_each_time(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("waymark")
    (tmp_path / "ca.crt").write_text(Authority().pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    source = DiscoverySource(name="here", in_cluster=True)
    assert connection_of(source, tmp_path).url == "https://10.96.0.1:443"
    (tmp_path / "token").write_text("second\n")
    assert connection_of(source, tmp_path).authorization == bearer("second")
