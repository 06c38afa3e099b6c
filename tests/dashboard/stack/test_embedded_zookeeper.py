"""The embedded ZooKeeper requires a log-in, also with the data of an earlier version without log-in."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionClosedRequireSaslError

from checkpointing.ha.services import zookeeper_services
from checkpointing.ha.zookeeper_access import opened
from checkpointing.java import JavaInstallation
from checkpointing.jobs.settings import JobManagerSettings
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles, ZooKeeperScheme
from checkpointing.storage import read_metadata
from dashboard.stack.environment import build
from dashboard.stack.process import running
from dashboard.stack.zookeeper import USER, ZooKeeperServer

pytestmark = pytest.mark.zookeeper
GRAPH = "/waymark/default/execution-plans/" + "a" * 32


def test_password_is_required_and_nodes_of_older_versions_remain(tmp_path: Path, java_home: Path) -> None:
    environment = build({}, tmp_path, JavaInstallation(java_home, 17, "a test"))
    server, log = environment.zookeeper, tmp_path / "zookeeper.log"
    assert server is not None
    port = environment.ports["zookeeper"]
    with running(ZooKeeperServer(tmp_path / "zookeeper", port, java_home), log=log), closing(client(port)) as anybody:
        anybody.start()
        anybody.create(GRAPH, b"kept", makepath=True)
        anybody.stop()

    with running(server, log=log):
        with closing(client(port)) as stranger:
            stranger.start()  # the session is created, and its first request ends it
            for act in (lambda: stranger.create("/mine"), lambda: stranger.get(GRAPH)):
                with pytest.raises((ConnectionLoss, SessionClosedRequireSaslError)):
                    act()
            stranger.stop()
        settings = JobManagerSettings.from_environ(environment.variables)
        expected = ZooKeeperAccessFiles(ZooKeeperScheme.SASL, USER, str(tmp_path / "zookeeper" / "password"))
        assert settings.zookeeper_access == expected
        where = (server.address, "/waymark", "default", tmp_path / "ha", read_metadata)
        with closing(zookeeper_services(*where, access=expected)), closing(ours(port, expected)) as job_manager:
            job_manager.start()
            assert job_manager.get(GRAPH)[0] == b"kept"
            assert job_manager.exists("/mine") is None
            assert opened(expected).owns(job_manager.get_acls(GRAPH)[0])
            job_manager.stop()


def test_embedded_ensemble_overrides_the_callers_variables(tmp_path: Path) -> None:
    foreign = {"WAYMARK_ZOOKEEPER_PASSWORD": "of another", "WAYMARK_ZOOKEEPER_TLS": "true"}
    variables = build(foreign, tmp_path, JavaInstallation(Path("/java"), 17, "a test")).variables
    access = JobManagerSettings.from_environ({**foreign, **variables}).zookeeper_access
    assert access is not None
    assert (opened(access).password, access.uses_tls) == ((tmp_path / "zookeeper" / "password").read_text(), False)


def client(port: int) -> KazooClient:
    return KazooClient(f"127.0.0.1:{port}")


def ours(port: int, access: ZooKeeperAccessFiles) -> KazooClient:
    return KazooClient(f"127.0.0.1:{port}", **opened(access).client_options())
