"""Storage servers, started once for all tests that use them, and a directory on another file system."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

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
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory on another file system than `tmp_path`, so that no hard link can connect them."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not another file system here")
    directory = memory / f"waymark-test-{uuid.uuid4().hex}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> Callable[[StorageServer], None]:
    """Return a function that sets a server's credentials in this process, where fsspec and its drivers read them."""

    def admit(server: StorageServer) -> None:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        conf: dict[str, dict[str, str]] = {}
        fsspec.config.set_conf_env(conf)
        for protocol, options in conf.items():
            monkeypatch.setitem(fsspec.config.conf, protocol, options)

    return admit
