"""Every implementation of `Files`, each with an empty directory."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest

from checkpointing.storage.files import Files, LocalFiles
from checkpointing.storage.fsspec_files import FsspecFiles
from checkpointing.storage.locations import JOB_MANAGER_MEMORY
from checkpointing.storage.opening import PROCESS_MEMORY, files_for
from tests.storage_servers import StorageServer


@dataclass(frozen=True)
class Place:
    """An implementation of `Files` and the empty directory `root`, which object stores do not need to create."""

    files: Files
    root: str


KINDS = ("local", "memory", "fsspec local", "fsspec memory", "s3", "ftp")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, admitted: Callable[[StorageServer], None]) -> Place:
    match request.param:
        case "local":
            return Place(LocalFiles(), str(tmp_path))
        case "memory":
            return Place(PROCESS_MEMORY, f"{JOB_MANAGER_MEMORY}/{uuid.uuid4().hex}")
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
