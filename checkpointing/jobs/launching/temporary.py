"""A temporary directory for each driver process, which is removed after the driver has ended for any reason.

A killed JVM leaves the native libraries and artifacts that it had unpacked: a few hundred megabytes a day if jobs
restart. A lock (flock) on a file in each directory shows which ones are in use. The lock is taken before the driver
starts, only the driver inherits it, and it ends with the driver's process. So no process ID is needed, and a driver
that was adopted, or that outlives its job manager, keeps its directory.

A directory also stays while a process that the driver started has it as its TMPDIR. A JVM that is still starting ends
when it finds that its driver is gone. If its directory were gone too, it would run forever.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkpointing.ids import new_id, stable_id

logger = logging.getLogger(__name__)

LOCK_NAME = ".in-use"
_LOOK_S = 2.0
_ID_LENGTH = 12
_NAME = re.compile(r"[0-9a-f]{12}")
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs", "lustre", "9p",
                      "beegfs", "afs", "fuse.sshfs"})  # fmt: skip
# The address of a Unix socket may have 107 bytes. Programs and Spark create such sockets in temporary directories.
_LONGEST_SOCKET = 107
_ROOM_FOR_A_NAME = 50


@dataclass(frozen=True)
class TemporaryDirectory:
    """A directory for one driver.

    The driver inherits the file descriptor `lock` and owns the directory while it holds it.
    """

    path: Path
    lock: int


class TemporaryDirectories:
    """The temporary directories below one directory, which job managers of one machine may share. Usable on any thread.

    `is_shared`: other machines use the state directory, too. A machine may not see the locks of another one.
    """

    def __init__(self, state_directory: Path, *, is_shared: bool = False) -> None:
        is_shared = is_shared or filesystem_of(state_directory) in _NETWORK
        self.parent = _parent(state_directory, is_shared=is_shared)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.remove_later()

    @contextlib.contextmanager
    def new(self) -> Iterator[TemporaryDirectory]:
        """Yield a directory for the process that the block starts. Remove it if the block raises. Raise OSError."""
        temporary = self._made()
        try:
            yield temporary
        except BaseException:
            shutil.rmtree(temporary.path, ignore_errors=True)
            raise
        finally:
            os.close(temporary.lock)
        self.remove_later()

    def _made(self) -> TemporaryDirectory:
        """Create a locked directory. Retry if a sweep removed it between its creation and its lock."""
        while True:
            path = self.parent / new_id()[:_ID_LENGTH]
            self.parent.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self.parent.mkdir(mode=0o700, exist_ok=True)
                _check_ours(self.parent)
                path.mkdir(mode=0o700)
                lock = os.open(path / LOCK_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with contextlib.suppress(OSError):  # a disk without locks: nothing is removed there
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if (path / LOCK_NAME).exists():
                    return TemporaryDirectory(path, lock)
                os.close(lock)

    def remove_later(self) -> None:
        """Remove unused directories on a separate thread, which ends when no directory is left."""
        with self._lock:
            if self._thread is None and self._all():
                self._thread = threading.Thread(target=self._watch, name="driver-temporaries", daemon=True)
                self._thread.start()

    def sweep(self) -> None:
        """Remove the directories whose driver has ended. A failed removal is retried at the next sweep."""
        for path in self._all():
            with contextlib.suppress(OSError), _abandoned(path):
                _remove(path)
        with contextlib.suppress(OSError):
            self.parent.rmdir()

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            self.sweep()
            with self._lock:
                if not self._all():
                    self._thread = None
                    return
            pause.wait(_LOOK_S)

    def _all(self) -> list[Path]:
        """Return the directories that this class may have created. It must not touch others."""
        try:
            return [path for path in self.parent.iterdir() if _NAME.fullmatch(path.name)]
        except OSError:
            return []


@contextlib.contextmanager
def _abandoned(path: Path) -> Iterator[None]:
    """Lock the directory, so that no driver can use it meanwhile.

    Raise OSError if a driver or its processes still use the directory, if that is unknown, or if the account may not
    use it. A directory without a lock was never given to a process, and is empty.
    """
    try:
        lock = os.open(path / LOCK_NAME, os.O_WRONLY)
    except FileNotFoundError:
        path.rmdir()
        raise
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_processes(path):
            raise BlockingIOError(errno.EAGAIN, "a process that the driver started still runs", str(path))
        yield
    finally:
        os.close(lock)


def _has_processes(temporary: Path) -> bool:
    """Return whether a process of this account has `temporary` as its TMPDIR. False where there is no /proc."""
    wanted = os.fsencode(f"TMPDIR={temporary}")
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environment.read_bytes().split(b"\0"):
                return True
    return False


def _remove(path: Path) -> None:
    """Remove the directory, its lock last: a directory without a lock would look like a foreign one. Raise OSError."""
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK_NAME:
            entry.unlink()
    shutil.rmtree(path)


def _parent(state_directory: Path, *, is_shared: bool) -> Path:
    """Return the parent directory: in the state directory unless that is shared or unfit for sockets or libraries."""
    own = state_directory.absolute() / "tmp"
    longest = len(os.fsencode(own)) + 1 + _ID_LENGTH + 1 + _ROOM_FOR_A_NAME
    if not is_shared and longest <= _LONGEST_SOCKET and not _forbids_programs(state_directory):
        return own
    elsewhere = Path(tempfile.gettempdir()) / f"waymark-{stable_id(str(own))[:_ID_LENGTH]}"
    try:
        _check_ours(elsewhere)
    except FileNotFoundError:
        return elsewhere
    except OSError as error:
        logger.warning("temporary files of drivers go to %s: %s", own, error)
        return own
    return elsewhere


def _check_ours(directory: Path) -> None:
    """Raise OSError unless the directory belongs to this account: another user may have created it first."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user, or is not a directory", str(directory))


def filesystem_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the file system type of `path`, which need not exist yet, or "" if it is unknown."""
    found: tuple[int, str] = (-1, "")
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    resolved = path.resolve()
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if resolved.is_relative_to(point) and len(point) >= found[0]:
            found = (len(point), kind)
    return found[1]


def _forbids_programs(directory: Path) -> bool:
    while not directory.exists():
        directory = directory.parent
    return bool(os.statvfs(directory).f_flag & os.ST_NOEXEC)
