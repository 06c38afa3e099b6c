"""Spark's classes, loaded and verified once for all drivers of this machine: Java's class data sharing.

A third of the processor time of a driver's start is for loading classes. The first start has them written into an
archive, by a process of its own that steps back behind everything else (`checkpointing.spark.class_archive`); the JVMs
that start once it is there map it, and share its memory. One that does not fit (another class path, other options of a
job's own) Java passes over; a damaged one would end it, so only what was checked is handed out.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.durable_files import sync
from checkpointing.java import real_home
from checkpointing.jobs.launching.temporary import TemporaryDirectories
from checkpointing.storage.checksums import sha256_of

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "classes"
# Where a driver's process finds the path of the archive that its JVM is to use.
VARIABLE = "WAYMARK_CLASS_ARCHIVE"
# A maker's exit code where another job manager's is at it already.
BEING_MADE = 3
_SUFFIX, _TOLD, _USED = ".jsa", ".sha256", ".used"
_KEPT_UNUSED_S = 7 * 86_400
# What does not fit is no fault: without these Java says so at each start.
_QUIET = "-Xlog:cds*=off -Xlog:class+path*=off"


def options(archive: str) -> str:
    """For a JVM's command line; "" without one."""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}' if archive else ""


def making_options(archive: Path) -> str:
    """For a JVM that writes what it has loaded when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}" {_QUIET}'


def keep(written: Path, archive: Path) -> None:
    """`written`, which is complete, becomes `archive`; what it must be is noted first. OSError."""
    sync(written)
    archive.with_suffix(_TOLD).write_text(sha256_of(written))
    written.rename(archive)


class ClassArchives:
    """One for each Java and each set of Spark's jars, in `directory`, which job managers may share.

    `command` makes one, with its path as last argument; its standard input ends when the job manager does. Any thread.
    """

    def __init__(
        self,
        directory: Path,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        temporaries: TemporaryDirectories,
    ) -> None:
        self._directory = directory.absolute()
        self._command = command
        self._environment = environment
        self._temporaries = temporaries
        self._lock = threading.Lock()
        self._checksums = FileChecksums()
        self._tried: set[Path] = set()
        self._makers: list[subprocess.Popen[bytes]] = []

    def of(self, java_home: Path) -> Path | None:
        """The archive for JVMs of `java_home`; None: there is none now. The first who asks in vain has it made."""
        if not _can_share(java_home):
            return None
        archive = self._directory / f"{_fingerprint(java_home)}{_SUFFIX}"
        with self._lock:
            if self._is_whole(archive):
                with suppress(OSError):
                    archive.with_suffix(_USED).touch()
                return archive
            if archive not in self._tried:
                self._tried.add(archive)
                self._begin(archive)
        return None

    def close(self) -> None:
        """End what is being made; the next job manager begins anew."""
        with self._lock:
            for maker in self._makers:
                os.killpg(maker.pid, signal.SIGKILL)
                _reap(maker)
            self._makers.clear()
            self._tried.clear()

    def _is_whole(self, archive: Path) -> bool:
        """Read once, and again when it is another file."""
        try:
            if self._checksums.of(archive) != archive.with_suffix(_TOLD).read_text():
                raise ValueError("it is not what was written")
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            logger.warning("the class archive %s is not used and made anew: %s", archive, error)
            archive.unlink(missing_ok=True)
            self._tried.discard(archive)
            return False
        return True

    def _begin(self, archive: Path) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._forget_unused()
            with self._temporaries.new() as temporary, archive.with_suffix(".log").open("wb") as log:
                maker = subprocess.Popen(
                    [*self._command, str(archive)],
                    env={**self._environment(), "TMPDIR": str(temporary.path)},
                    pass_fds=(temporary.lock,),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            logger.warning("no class archive can be made, drivers start without: %s", error)
            return
        self._makers.append(maker)
        threading.Thread(target=self._wait, args=(maker, archive), name="class-archive", daemon=True).start()

    def _wait(self, maker: subprocess.Popen[bytes], archive: Path) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, maker.pid, os.WEXITED | os.WNOWAIT)  # not reaped: its id is still its own
        with self._lock:
            if maker not in self._makers:
                return  # ended by `close`
            self._makers.remove(maker)
            code = _reap(maker)
        if code == 0:
            logger.info("drivers start with the class archive %s from now on", archive)
        elif code != BEING_MADE:
            log = archive.with_suffix(".log")
            logger.warning("no class archive was made (%d), drivers start without; see %s", code, log)

    def _forget_unused(self) -> None:
        """Of a Java or a Spark that is no more. JVMs that have one mapped keep it."""
        before = time.time() - _KEPT_UNUSED_S
        for archive in self._directory.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                if max(_modified((archive, archive.with_suffix(_USED)))) < before:
                    for path in self._directory.glob(f"{archive.stem}.*"):
                        path.unlink()


def _reap(maker: subprocess.Popen[bytes]) -> int:
    with maker:  # closes its input
        return maker.wait()


def _modified(paths: Iterable[Path]) -> list[float]:
    return [path.stat().st_mtime for path in paths if path.exists()]


def _can_share(java_home: Path) -> bool:
    """What is archived comes on top of Java's own archive, which not every Java has."""
    return any((real_home(java_home) / "lib" / "server").glob("classes*.jsa"))


def _fingerprint(java_home: Path) -> str:
    """Of all that an archive depends on, and of this machine: job managers of several may share the directory."""
    real = real_home(java_home)
    release = real / "release"
    told = [platform.node(), str(real), release.read_text() if release.exists() else "", version("pyspark")]
    spec = find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        jars = sorted((Path(place) / "jars").iterdir())
        told += [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
