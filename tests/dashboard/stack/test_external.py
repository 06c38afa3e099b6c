from __future__ import annotations

import pytest

from dashboard.stack.start import ExternalUnreachable, wait_for_external


def test_unreachable_server_is_named_without_its_password() -> None:
    environ = {"DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/x", "ZOOKEEPER_HOSTS": "127.0.0.1:1"}
    output: list[str] = []

    with pytest.raises(ExternalUnreachable) as silent:
        wait_for_external(environ, output.append, limit_s=0.1)

    text = str(silent.value)
    assert "postgres: postgresql://u:***@127.0.0.1:1/x does not answer" in text
    assert "zookeeper: 127.0.0.1:1 does not answer" in text
    assert "correct DATABASE_URL" in text
    assert output == ["waiting for postgres, zookeeper to answer, 0.1 s at most"]


def test_reachable_and_unneeded_servers_are_not_waited_for(postgres_dsn: str, redis_url: str) -> None:
    environ = {"DATABASE_URL": postgres_dsn, "REDIS_URL": redis_url, "EMAIL_URL": "smtp://127.0.0.1:1"}

    wait_for_external(environ, pytest.fail, limit_s=0)
