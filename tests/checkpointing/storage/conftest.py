"""Every kind of `Files`, each with an empty place to work in."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest

from checkpointing.storage.files import Files, LocalFiles
from checkpointing.storage.fsspec_files import FsspecFiles
from checkpointing.storage.memory_files import MemoryFiles
from checkpointing.storage.opening import files_for
from tests.storage_servers import StorageServer, ftp_server, s3_server


@dataclass(frozen=True)
class Place:
    """`root` exists as far as a directory can, and is empty."""

    files: Files
    root: str


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


KINDS = ("local", "memory", "fsspec local", "fsspec memory", "s3", "ftp")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, admitted: Callable[[StorageServer], None]) -> Place:
    match request.param:
        case "local":
            return Place(LocalFiles(), str(tmp_path))
        case "memory":
            return Place(MemoryFiles(), "jobmanager://memory")
        case "fsspec local":
            files = FsspecFiles(lambda: fsspec.filesystem("file", use_listings_cache=False), is_object_store=False)
            return Place(files, str(tmp_path))
        case "fsspec memory":
            memory = fsspec.filesystem("memory", global_store=False, skip_instance_cache=True)
            return Place(FsspecFiles(lambda: memory, is_object_store=False), "memory://root")
        case kind:
            server: StorageServer = request.getfixturevalue(kind)
            admitted(server)
            root = f"{server.root}/{uuid.uuid4().hex}"
            files_for(root).make_directory(root)
            return Place(files_for(root), root)
