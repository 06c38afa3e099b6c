"""Errors of remote storage: each has a specific type and a helpful text without secrets."""

from __future__ import annotations

import errno
import ftplib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from checkpointing.storage import (
    AccessDenied,
    DriverMissing,
    StorageError,
    StorageFull,
    StorageUnreachable,
    UnknownScheme,
    canonical,
    files_for,
    read_metadata,
)
from checkpointing.storage.foreign_errors import as_storage_error, mapped_errors
from checkpointing.storage.fsspec_files import FsspecFiles, fsspec_files
from tests.storage_servers import StorageServer, ftp_server


@pytest.mark.parametrize("scheme", ["nosuch", "http", "memory", "zip", "simplecache"])
def test_a_scheme_that_cannot_keep_snapshots_is_refused(scheme: str) -> None:
    with pytest.raises(UnknownScheme, match=f"{scheme}://host/x: '{scheme}' is not supported as storage"):
        files_for(f"{scheme}://host/x")


@pytest.mark.parametrize(("scheme", "package"), [("gs", "gcsfs"), ("sftp", "paramiko"), ("az", "adlfs")])
def test_a_missing_driver_names_its_package(scheme: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)  # as if the package were not installed
    with pytest.raises(DriverMissing, match=f"pip install {package}"):
        files_for(f"{scheme}://host/x")


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("s3:/bucket/x", "two slashes"),
        ("ftp://user:hunter2@host/x", "must not contain a password"),
        ("s3://bucket/x?token=hunter2", "must not contain '\\?'"),
        ("s3://bucket/../other", "or empty names"),
        ("s3://bucket/a//b", "or empty names"),
        ("relative/path", "neither an absolute path nor an address"),
        ("file://other-host/x", "another machine"),
    ],
)
def test_invalid_location_is_refused_without_its_secret(location: str, problem: str) -> None:
    with pytest.raises(StorageError, match=problem) as caught:
        canonical(location)
    assert "hunter2" not in str(caught.value)


def test_location_has_one_canonical_form() -> None:
    assert canonical("S3://Bucket/a/b/") == "s3://Bucket/a/b"
    assert canonical("abfs://container@account.dfs.core.windows.net/x") == (
        "abfs://container@account.dfs.core.windows.net/x"
    )
    assert canonical("file:///a/b/") == "/a/b"


def test_server_without_answer_is_unreachable() -> None:
    with pytest.raises(StorageUnreachable, match=r"ftp://127\.0\.0\.1:9/x: the storage cannot be reached"):
        files_for("ftp://127.0.0.1:9/x").names("ftp://127.0.0.1:9/x")


def test_an_s3_server_that_does_not_answer_is_unreachable(
    admitted: Callable[[StorageServer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    files = _fresh("s3", is_object_store=True)
    with pytest.raises(StorageUnreachable, match="cannot be reached"):
        files.read("s3://bucket/x")


@pytest.mark.parametrize("wrong", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_s3_keys_are_refused_by_the_server(
    s3: StorageServer, admitted: Callable[[StorageServer], None], monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    admitted(s3)
    monkeypatch.setenv(wrong, "hunter2")
    with pytest.raises(AccessDenied, match="refuses access") as caught:
        _fresh("s3", is_object_store=True).write_durably(f"{s3.root}/x", b"x")
    assert "hunter2" not in str(caught.value)


def test_an_ftp_log_in_that_fails_is_refused_by_the_server(ftp: StorageServer) -> None:
    files = _fresh("ftp", host="127.0.0.1", port=int(ftp.root.rpartition(":")[2]), username="waymark", password="wrong")
    with pytest.raises(AccessDenied, match=r"refuses access.*530") as caught:
        files.names(f"{ftp.root}/x")
    assert "wrong" not in str(caught.value)


def test_a_missing_bucket_is_not_an_empty_location(
    s3: StorageServer, admitted: Callable[[StorageServer], None]
) -> None:
    admitted(s3)
    with pytest.raises(OSError, match="bucket"):
        files_for("s3://other").write_durably("s3://other/chk-1/_metadata", b"x")


def test_a_connection_that_was_lost_while_idle_is_opened_again(
    tmp_path: Path, admitted: Callable[[StorageServer], None]
) -> None:
    with ftp_server(tmp_path) as server:
        admitted(server)
        made: list[Any] = []

        def connect() -> Any:
            made.append(fsspec.filesystem("ftp", host="127.0.0.1", port=port, skip_instance_cache=True))
            return made[-1]

        port = int(server.root.rpartition(":")[2])
        files = FsspecFiles(connect, is_object_store=False)
        files.write_durably(f"{server.root}/x", b"x")
        made[-1].ftp.sock.shutdown(2)  # as after the server's idle timeout
        assert files.read(f"{server.root}/x") == b"x"
        assert len(made) == 2


def test_an_unreachable_server_makes_no_checkpoint_appear_missing(
    tmp_path: Path, admitted: Callable[[StorageServer], None]
) -> None:
    """Checkpoints that look missing are removed, or ignored by a recovery."""
    with ftp_server(tmp_path) as server:
        admitted(server)
        files = files_for(server.root)
        files.write_durably(f"{server.root}/chk-1/_metadata", b"x")
    for ask in (files.names, files.sizes, files.read, read_metadata):
        with pytest.raises(StorageUnreachable):
            ask(f"{server.root}/chk-1")


class Failing(MemoryFileSystem):
    """A file system that turns any failure into "missing", as some fsspec drivers do."""

    cause: Exception = EOFError("connection lost")

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if path.endswith("/unreadable"):
            raise FileNotFoundError(path) from self.cause
        return super().ls(path, detail, **kwargs)

    def put_file(self, lpath: str, rpath: str, *args: Any, **kwargs: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes()[:3])
        raise self.cause

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        raise FileNotFoundError(path) from self.cause


def test_a_driver_that_calls_every_failure_missing_is_not_believed() -> None:
    memory = Failing(global_store=False, skip_instance_cache=True)
    files = FsspecFiles(lambda: memory, is_object_store=False)
    files.write_durably("memory://x/_metadata", b"x")
    with pytest.raises(StorageError, match="cannot be read") as caught:
        files.read("memory://x/_metadata")
    assert not isinstance(caught.value, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        files.read("memory://x/other")


def test_a_directory_that_cannot_be_created_is_an_error() -> None:
    class ReadOnly(MemoryFileSystem):
        def makedirs(self, path: str, exist_ok: bool = False) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", path)

    read_only = ReadOnly(global_store=False, skip_instance_cache=True)

    with pytest.raises(OSError, match="Permission denied"):
        FsspecFiles(lambda: read_only, is_object_store=False).make_directory("memory://root/chk-1")


def test_a_listing_that_fails_is_not_an_empty_directory() -> None:
    memory = Failing(global_store=False, skip_instance_cache=True)
    files = FsspecFiles(lambda: memory, is_object_store=False)
    for ask in (files.names, files.sizes, files.remove_empty_directory):
        with pytest.raises(StorageUnreachable, match="connection lost"):
            ask("memory://x/unreadable")


def test_a_connection_that_was_lost_and_calls_it_missing_is_not_used_again() -> None:
    instances = [Failing(global_store=False, skip_instance_cache=True), fsspec.filesystem("memory", global_store=False)]
    instances[1].pipe_file("/x/unreadable/file", b"x")
    files = FsspecFiles(lambda: instances.pop(0), is_object_store=False)
    assert list(files.names("memory://x/unreadable")) == ["file"]


def test_an_upload_that_breaks_off_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    memory = Failing(global_store=False, skip_instance_cache=True)
    files = FsspecFiles(lambda: memory, is_object_store=False)
    (tmp_path / "source").write_bytes(b"content")
    with pytest.raises(StorageUnreachable):
        files.put(tmp_path / "source", "memory://x/target")
    assert files.sizes("memory://x") == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), StorageFull),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), StorageFull),
        (ftplib.error_perm("552 Exceeded storage allocation"), StorageFull),
        (OSError("QuotaExceeded: the bucket is full"), StorageFull),
        (OSError(errno.EROFS, "Read-only file system"), AccessDenied),
        (PermissionError("Access Denied"), AccessDenied),
        (ftplib.error_perm("550 Permission denied"), AccessDenied),
        (ConnectionResetError(), StorageUnreachable),
        (TimeoutError("timed out"), StorageUnreachable),
        (OSError(errno.EHOSTUNREACH, "No route to host"), StorageUnreachable),
        (ftplib.error_temp("421 Too many connections"), StorageUnreachable),
        (ValueError("odd"), StorageError),
    ],
)
def test_foreign_errors_have_one_name_each(error: Exception, kind: type[StorageError]) -> None:
    assert type(as_storage_error("s3://b/x", error)) is kind
    with pytest.raises(kind, match="s3://b/x: "), mapped_errors("s3://b/x"):
        raise error


def _fresh(scheme: str, *, is_object_store: bool = False, **options: Any) -> FsspecFiles:
    """Return new files without the open connection of the process's shared ones."""
    return FsspecFiles(
        lambda: fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False, **options),
        is_object_store=is_object_store,
    )


def test_each_server_has_one_client() -> None:
    assert fsspec_files("ftp://h/a/b") is fsspec_files("ftp://h/c")
    assert fsspec_files("ftp://h/a") is not fsspec_files("ftp://other/a")
