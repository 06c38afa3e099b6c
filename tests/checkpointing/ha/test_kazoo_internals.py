"""Creating a client fails if kazoo lacks the private API that fencing needs."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import kazoo
import pytest
from kazoo.client import KazooClient

from checkpointing.ha import kazoo_internals, zookeeper_access
from checkpointing.ha.kazoo_internals import UnsupportedKazoo, check
from checkpointing.ha.zookeeper_access import OPEN, make_client


def test_the_installed_kazoo_has_the_needed_private_api() -> None:
    check(KazooClient("127.0.0.1:1"))


@pytest.mark.parametrize(
    ("client", "missing"),
    [
        (SimpleNamespace(), "KazooClient._connection"),
        (SimpleNamespace(_connection=object()), "ConnectionHandler._connect"),
    ],
)
def test_missing_kazoo_internals_are_named(client: Any, missing: str) -> None:
    with pytest.raises(UnsupportedKazoo) as raised:
        check(client)
    assert str(raised.value) == (
        f"kazoo {kazoo.__version__} lacks private API that Waymark uses: {missing}. "
        "Install kazoo 2.11, which Waymark supports."
    )


def test_the_internals_of_kazoos_tls_connection_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kazoo_internals, "SequentialThreadingHandler", object)
    with pytest.raises(UnsupportedKazoo, match=re.escape("uses: SequentialThreadingHandler.create_connection. ")):
        check(KazooClient("127.0.0.1:1"))


def test_no_client_is_created_with_other_internals_of_kazoo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_access, "KazooClient", lambda hosts, **options: SimpleNamespace())
    with pytest.raises(UnsupportedKazoo):
        make_client("127.0.0.1:1", OPEN)
