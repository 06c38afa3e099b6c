"""What checkpoint storage may lie on: servers, started once for all tests that ask for them, and a small disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fsspec
import pytest

from tests.storage_servers import StorageServer, ftp_server, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageServer]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def ftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageServer]:
    with ftp_server(tmp_path_factory.mktemp("ftp")) as server:
        yield server


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> Callable[[StorageServer], None]:
    """This process gets what it needs to be let in, in the ways that fsspec and its drivers read it."""

    def admit(server: StorageServer) -> None:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        conf: dict[str, dict[str, str]] = {}
        fsspec.config.set_conf_env(conf)
        for protocol, options in conf.items():
            monkeypatch.setitem(fsspec.config.conf, protocol, options)

    return admit
