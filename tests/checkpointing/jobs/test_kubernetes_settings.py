"""How a job manager finds the Kubernetes API, by its settings or as a pod itself, and how it calls the API."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from checkpointing.jobs.launching.deployment import LauncherKind
from checkpointing.jobs.launching.kubernetes.api import ApiAccess, ApiRefused, ApiUnreachable, KubernetesApi
from checkpointing.jobs.settings import InvalidSettings, JobManagerSettings
from checkpointing.main import _launcher
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.job_graph import JobGraph
from tests.checkpointing.jobs.loop_guard import watched_loop
from tests.checkpointing.jobs.played_kubernetes import NAMESPACE, TOKEN, PlayedKubernetes
from tests.checkpointing.jobs.running_job_manager import RunningJobManager


def settings(**environ: str) -> JobManagerSettings:
    return JobManagerSettings.from_environ({name: str(value) for name, value in environ.items()})


def test_outside_a_cluster_there_is_none_unless_it_is_named() -> None:
    assert (settings().kubernetes, settings().launcher) == (None, LauncherKind.PROCESS)
    with pytest.raises(InvalidSettings, match="WAYMARK_LAUNCHER: 'kubernetes' is not allowed outside a Kubernetes"):
        settings(WAYMARK_LAUNCHER="kubernetes")
    access = settings(WAYMARK_LAUNCHER="kubernetes", WAYMARK_KUBERNETES_API="https://k.internal:6443/").kubernetes
    assert access == ApiAccess("https://k.internal:6443", None, None, "default")


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"WAYMARK_KUBERNETES_API: 'k\.internal' is not allowed"):
        settings(WAYMARK_KUBERNETES_API="k.internal")
    missing = str(tmp_path / "missing")
    with pytest.raises(InvalidSettings, match="missing' is not allowed as its token or CA; a file that can be read"):
        settings(WAYMARK_KUBERNETES_API="https://k:1", WAYMARK_KUBERNETES_TOKEN_FILE=missing)


def test_pods_need_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    api = "https://k.internal:6443"
    with pytest.raises(InvalidSettings, match="not allowed without the extra kubernetes; run uv pip install"):
        settings(WAYMARK_LAUNCHER="kubernetes", WAYMARK_KUBERNETES_API=api)
    manager = RunningJobManager(tmp_path, None, {"WAYMARK_KUBERNETES_API": api})  # type: ignore[arg-type]
    graph = JobGraph("0" * 32, "words", "jar", "words.py:main", configuration={"waymark.launcher": "kubernetes"})
    with pytest.raises(InvalidConfiguration, match="or lacks the extra kubernetes"):
        _launcher(manager.settings, {}, api).check(graph)


def test_service_account_of_the_pod_is_used(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert ApiAccess.in_cluster(environ, tmp_path) is None, "no account is mounted"
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("streams\n")
    access = ApiAccess.in_cluster(environ, tmp_path)
    assert access == ApiAccess("https://10.96.0.1:443", tmp_path / "token", tmp_path / "ca.crt", "streams")


def test_the_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with PlayedKubernetes(tmp_path).serving() as cluster:
        assert cluster.api().pods(NAMESPACE, {}) == []


async def test_launchers_are_created_outside_the_event_loop(tmp_path: Path) -> None:
    """Creating a launcher reads the machine's control groups, which may block."""
    environ = {"WAYMARK_LAUNCHER": "kubernetes", "WAYMARK_KUBERNETES_API": "https://k.internal:6443"}
    manager = RunningJobManager(tmp_path, None, environ)  # type: ignore[arg-type]
    with watched_loop() as calls:
        await manager.start()
        await manager.shut_down()
    assert calls == []


def test_the_token_is_read_again_for_each_call(tmp_path: Path) -> None:
    with PlayedKubernetes(tmp_path).serving() as cluster:
        access = cluster.access
        assert access.token_file is not None
        api = KubernetesApi(access, timeout_s=5.0)
        access.token_file.write_text("expired")
        with pytest.raises(ApiUnreachable, match="answers 401: Unauthorized"):
            api.pods(NAMESPACE, {})
        access.token_file.write_text(TOKEN)
        assert api.pods(NAMESPACE, {}) == []


def test_a_refusal_has_the_message_of_kubernetes_and_a_busy_server_is_unreachable(tmp_path: Path) -> None:
    with PlayedKubernetes(tmp_path).serving() as cluster:
        api = cluster.api()
        with pytest.raises(ApiRefused) as refused:
            api.pod(NAMESPACE, "none")
        assert (refused.value.is_not_found, refused.value.reason, str(refused.value)) == (
            True,
            "NotFound",
            'pods "none" not found',
        )
        for status in (429, 500, 503):
            cluster.refuses[("GET", "pods")] = (status, "", "busy")
            with pytest.raises(ApiUnreachable, match=f"answers {status}: busy"):
                api.pods(NAMESPACE, {})
    with pytest.raises(ApiUnreachable, match="does not answer"):
        api.pods(NAMESPACE, {})
