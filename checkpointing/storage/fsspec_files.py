"""Any file system that fsspec supports, as `Files`. Only this module uses fsspec.

fsspec does not guarantee the following properties, so this module does:

- *Complete or not at all.* An object store's PUT is atomic, and durable when it returns. Elsewhere a file is written
  under a temporary name and renamed. A client that dies in between leaves a hidden file, which the sweep removes.
- *Durable.* No driver offers fsync, so a file is as safe as its server makes it when it confirms.
- *Directories.* An object store has none. Creating one only checks that nothing has its prefix, and it disappears with
  its last object.
- *Current answers.* Drivers cache listings and instances; both caches are turned off.
- *Threads.* Asynchronous drivers can be shared. Others get one connection for each operation, which is reused later, at
  most `TRANSFERS` of them. A connection that was lost while idle is replaced, once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.registry import get_filesystem_class, known_implementations

from checkpointing.storage.checksums import checksum_of
from checkpointing.storage.errors import DriverMissing, StorageError, StorageUnreachable, UnknownScheme
from checkpointing.storage.files import Entry
from checkpointing.storage.foreign_errors import mapped_errors
from checkpointing.storage.layout import temporary_name
from checkpointing.storage.locations import name, parent

T = TypeVar("T")

TRANSFERS = 8
_CHUNK = 1 << 20
_MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "modify", "modificationTime", "created")
_SECONDS_END = 100_000_000_000  # larger numbers are milliseconds
_REMOVE_ATTEMPTS = 5
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "tos"})
# fsspec knows these, but they are temporary, read only, or wrappers around another file system.
_NO_STORAGE = frozenset({
    "memory", "data", "http", "https", "github", "gist", "git", "zip", "tar", "libarchive", "reference", "generic",
    "blockcache", "cached", "filecache", "simplecache", "dir", "async_wrapper", "asyncwrapper", "pyscript",
})  # fmt: skip
# The packages whose names differ from the driver's module.
_PACKAGES = {
    "sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol", "hdfs": "pyarrow", "arrow_hdfs": "pyarrow",
    "webhdfs": "requests", "dbfs": "requests", "lakefs": "lakefs-spec", "root": "fsspec-xrootd",
}  # fmt: skip


class FsspecFiles:
    """Files of one server. `connect` creates an instance of fsspec's file system; see `fsspec_files`."""

    def __init__(self, connect: Callable[[], Any], *, is_object_store: bool) -> None:
        self._connect = connect
        self._is_object_store = is_object_store
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        self._permits = threading.BoundedSemaphore(TRANSFERS)
        self._shared: Any = None

    @property
    def transfers(self) -> int:
        return TRANSFERS

    def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
        if new and self._run(path, lambda fs: _exists(fs, path)):
            raise FileExistsError(f"{path} exists already")
        if not self._is_object_store:
            self._run(path, lambda fs: _make_directories(fs, path))

    def write_durably(self, path: str, content: bytes) -> None:
        self._placed(path, lambda fs, name: fs.pipe_file(name, content), len(content))

    def put(self, source: Path, path: str) -> None:
        self._placed(path, lambda fs, name: fs.put_file(str(source), name), source.stat().st_size)

    def is_same(self, path: str, source: Path, checksum: str) -> bool:
        return True

    def make_durable(self, paths: Iterable[str]) -> None:
        """Do nothing: the server has confirmed that it stores them."""

    def get(self, path: str, target: Path, like: str) -> str:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._run(path, lambda fs: _fetch(fs, path, target))
        with target.open("rb") as file:
            return checksum_of(file, like)

    def read(self, path: str) -> bytes:
        return self._run(path, lambda fs: _read(fs, path))

    def read_part(self, path: str, start: int, size: int) -> bytes:
        return self._run(path, lambda fs: _read(fs, path, start=start, end=start + size))

    def checksum(self, path: str, like: str) -> str:
        return self._run(path, lambda fs: _checksum(fs, path, like))

    def names(self, path: str) -> Sequence[str]:
        return [name(entry["name"].rstrip("/")) for entry in self._listing(path)]

    def sizes(self, path: str) -> Mapping[str, int]:
        return {
            name(entry["name"]): int(entry["size"] or 0) for entry in self._listing(path) if entry["type"] == "file"
        }

    def entries(self, path: str) -> Mapping[str, Entry]:
        return {
            name(each["name"].rstrip("/")): Entry(each["type"] == "directory", int(each["size"] or 0), _modified(each))
            for each in self._listed(path)
            if not each.get("islink")
        }

    def remove_file(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._run(path, lambda fs: _remove_file(fs, path))

    def remove_empty_directory(self, path: str) -> None:
        if not self._is_object_store and not self._listing(path):
            with contextlib.suppress(FileNotFoundError):
                self._run(path, lambda fs: _remove_directory(fs, path))

    def remove_tree(self, path: str) -> None:
        for attempt in range(1, _REMOVE_ATTEMPTS + 1):
            try:
                self._run(path, lambda fs: _remove_tree(fs, path))
            except FileNotFoundError:
                return
            except StorageError:
                if attempt == _REMOVE_ATTEMPTS:
                    raise

    def _placed(self, path: str, write: Callable[[Any, str], object], size: int) -> None:
        """Write completely or not at all, and check the size that the storage reports."""

        def place(fs: Any) -> int:
            target = _plain(fs, path)
            if self._is_object_store:
                write(fs, target)
            else:
                _through_temporary(fs, target, write)
            return int(_info(fs, path)["size"])

        if not self._is_object_store:
            self._run(path, lambda fs: _make_directories(fs, parent(path)))
        if (found := self._run(path, place)) != size:
            raise StorageError(f"{path}: {found} bytes arrived instead of {size}")

    def _listing(self, path: str) -> list[dict[str, Any]]:
        try:
            return self._listed(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _listed(self, path: str) -> list[dict[str, Any]]:
        """List a directory without its own entry, which some drivers include."""

        def listed(fs: Any) -> list[dict[str, Any]]:
            own = _plain(fs, path)
            fs.invalidate_cache()
            return [entry for entry in fs.ls(own, detail=True) if entry["name"].rstrip("/") not in (own, path)]

        return self._run(path, listed)

    def _run(self, path: str, work: Callable[[Any], T]) -> T:
        """Run an operation. Repeat it once after a lost connection, which is safe for all operations."""
        try:
            return self._run_once(path, work)
        except StorageUnreachable:
            if self._shared is not None:  # asynchronous drivers retry by themselves
                raise
        return self._run_once(path, work)

    def _run_once(self, path: str, work: Callable[[Any], T]) -> T:
        """Run an operation.

        The inner `mapped_errors` shows whether the instance can be reused; the outer one covers connecting.
        """
        with mapped_errors(path), self._instance() as fs, mapped_errors(path):
            return work(fs)

    @contextlib.contextmanager
    def _instance(self) -> Iterator[Any]:
        if self._shared is not None:
            yield self._shared
            return
        with self._permits:
            fs = self._idle_instance() or self._connect()
            if getattr(fs, "async_impl", False):
                self._shared = fs
            try:
                yield fs
            except Exception as error:
                if not isinstance(error, FileNotFoundError | FileExistsError):
                    self._forget_idle()
                    raise
                self._idle.put(fs)
                raise
            else:
                self._idle.put(fs)

    def _idle_instance(self) -> Any:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return None

    def _forget_idle(self) -> None:
        """Close all idle connections, because the reason for one broken connection may concern the others, too."""
        while self._idle_instance() is not None:
            pass


_opened: dict[str, FsspecFiles] = {}
_opening = threading.Lock()


def fsspec_files(location: str) -> FsspecFiles:
    """Return the files of the server in `location` (remote, canonical): one object for each server and process.

    Raise UnknownScheme or DriverMissing. No connection is made yet.
    """
    scheme, _, rest = location.partition("://")
    server = f"{scheme}://{rest.partition('/')[0]}"
    with _opening:
        if server not in _opened:
            _opened[server] = _open(scheme, location)
        return _opened[server]


def _open(scheme: str, location: str) -> FsspecFiles:
    driver = _driver(scheme, location)
    try:
        options = driver._get_kwargs_from_urls(location)  # noqa: SLF001 - how fsspec.open itself reads an address
    except Exception as error:
        raise StorageError(f"{location}: {error}") from error
    fresh = {"skip_instance_cache": True, "use_listings_cache": False}
    return FsspecFiles(lambda: fsspec.filesystem(scheme, **options, **fresh), is_object_store=scheme in OBJECT_STORES)


def _driver(scheme: str, location: str) -> Any:
    try:
        if scheme not in _NO_STORAGE:
            return get_filesystem_class(scheme)
    except ImportError as error:
        raise DriverMissing(location, _package(scheme)) from error
    except ValueError:
        pass  # fsspec knows no such protocol
    raise UnknownScheme(
        f"{location}: {scheme!r} is not supported as storage for snapshots; use file:, s3, gs, abfs, hdfs, sftp, …"
    )


def _package(scheme: str) -> str:
    module = str(known_implementations[scheme]["class"]).partition(".")[0]
    return _PACKAGES.get(scheme, module.replace("_", "-"))


# --- single steps, on one instance -----------------------------------------------------------------------------------


def _plain(fs: Any, path: str) -> str:
    """Return `path` as the driver names it, without scheme and server."""
    return str(fs._strip_protocol(path))  # noqa: SLF001 - there is no public way


def _modified(entry: Mapping[str, Any]) -> int | None:
    """Return the time of the last change in epoch milliseconds. Drivers differ in its name, type and unit."""
    found = next((entry[key] for key in _MODIFIED if entry.get(key)), None)
    try:
        match found:
            case str() if found[:14].isdigit():  # FTP: 20261126180000
                found = datetime.strptime(found[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            case str():
                found = datetime.fromisoformat(found)
            case int() | float():
                return round(found if found > _SECONDS_END else found * 1000)
    except ValueError:
        return None
    if not isinstance(found, datetime):
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _info(fs: Any, path: str) -> dict[str, Any]:
    fs.invalidate_cache()
    return dict(fs.info(_plain(fs, path)))


def _exists(fs: Any, path: str) -> bool:
    """Return whether the path exists. fsspec's own `exists` also returns False after any error."""
    try:
        _info(fs, path)
    except FileNotFoundError:
        return False
    return True


def _make_directories(fs: Any, path: str) -> None:
    """Create directories. Retry, because another thread may create one of the parents at the same time."""
    for is_last in (False, False, False, True):
        if _exists(fs, path):
            return
        try:
            fs.makedirs(_plain(fs, path), exist_ok=True)
        except Exception:
            if is_last:
                raise


def _through_temporary(fs: Any, target: str, write: Callable[[Any, str], object]) -> None:
    temporary = f"{parent(target)}/{temporary_name(name(target))}"
    try:
        write(fs, temporary)
        fs.mv(temporary, target)
    except Exception:
        with contextlib.suppress(Exception):  # the first error explains more than an error of this call
            fs.rm_file(temporary)
        raise


@contextlib.contextmanager
def _missing_or_unreadable(fs: Any, path: str) -> Iterator[None]:
    """Raise FileNotFoundError only for a missing file: some drivers report every failure as "missing", others none."""
    try:
        yield
    except Exception as error:
        if not _exists(fs, path):
            raise FileNotFoundError(path) from None
        if isinstance(error, FileNotFoundError):
            raise StorageError(f"{path}: cannot be read ({error.__cause__ or error})") from error
        raise


def _read(fs: Any, path: str, **limits: int) -> bytes:
    with _missing_or_unreadable(fs, path):
        return bytes(fs.cat_file(_plain(fs, path), **limits))


def _fetch(fs: Any, path: str, target: Path) -> None:
    """Download a file. Blocking drivers get an open file, because some leave files open that they opened themselves."""
    with _missing_or_unreadable(fs, path):
        if getattr(fs, "async_impl", False):
            fs.get_file(_plain(fs, path), str(target))
            return
        with target.open("wb") as file:
            fs.get_file(_plain(fs, path), file)


def _checksum(fs: Any, path: str, like: str) -> str:
    with _missing_or_unreadable(fs, path), fs.open(_plain(fs, path), "rb", block_size=8 * _CHUNK) as file:
        return checksum_of(file, like)


def _remove_file(fs: Any, path: str) -> None:
    if _exists(fs, path):
        fs.rm_file(_plain(fs, path))


def _remove_directory(fs: Any, path: str) -> None:
    if _exists(fs, path):
        fs.rmdir(_plain(fs, path))


def _remove_tree(fs: Any, path: str) -> None:
    """Remove a tree. A file that appeared meanwhile needs another round, so it is gone only when nothing is listed."""
    if not _exists(fs, path):
        raise FileNotFoundError(path)
    fs.rm(_plain(fs, path), recursive=True)
