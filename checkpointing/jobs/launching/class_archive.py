"""Archives of Spark's loaded and verified classes for all drivers of this machine: Java's class data sharing.

Loading classes takes a third of the processor time of a driver's start. The first start begins a separate process with
low priority that writes the classes into an archive (`checkpointing.spark.class_archive`). JVMs that start later map
the archive and share its memory. Java ignores an archive that does not fit, because of another class path or other
options of a job. A damaged archive would end the JVM, so only checked ones are used.
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
# The environment variable in which a driver's process finds the path of its JVM's archive.
VARIABLE = "WAYMARK_CLASS_ARCHIVE"
# The exit code of a process that found another job manager making the archive.
BEING_MADE = 3
_SUFFIX, _TOLD, _USED = ".jsa", ".sha256", ".used"
_KEPT_UNUSED_S = 7 * 86_400
# Java ignores an archive that does not fit. These options keep it from reporting that at each start.
_QUIET = "-Xlog:cds*=off -Xlog:class+path*=off"


def options(archive: str) -> str:
    """Return the options for a JVM's command line, or "" without an archive."""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}' if archive else ""


def making_options(archive: Path) -> str:
    """Return the options for a JVM that writes its loaded classes into an archive when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}" {_QUIET}'


def publish(written: Path, archive: Path) -> None:
    """Rename the complete file `written` to `archive`. Write its checksum first. Raise OSError."""
    sync(written)
    archive.with_suffix(_TOLD).write_text(sha256_of(written))
    written.rename(archive)


class ClassArchives:
    """The archives in `directory`: one for each Java and each set of Spark's jars.

    Job managers may share the directory.

    `command` makes an archive; its last argument is the path. Its standard input is closed when the job manager ends.
    Usable on any thread.
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
        """Return the archive for JVMs of `java_home`, or None if there is none now.

        The first such call begins to make it.
        """
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
        """End the processes that make archives. The next job manager starts them again."""
        with self._lock:
            for maker in self._makers:
                os.killpg(maker.pid, signal.SIGKILL)
                _reap(maker)
            self._makers.clear()
            self._tried.clear()

    def _is_whole(self, archive: Path) -> bool:
        """Return whether the archive matches its checksum. Read the file once, and again if it has changed."""
        try:
            if self._checksums.of(archive) != archive.with_suffix(_TOLD).read_text():
                raise ValueError("its content does not match its checksum")
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            logger.warning("the class archive %s is not used but created again: %s", archive, error)
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
            os.waitid(os.P_PID, maker.pid, os.WEXITED | os.WNOWAIT)  # not reaped yet, so the ID is not reused
        with self._lock:
            if maker not in self._makers:
                return  # `close` ended the process
            self._makers.remove(maker)
            code = _reap(maker)
        if code == 0:
            logger.info("drivers start with the class archive %s from now on", archive)
        elif code != BEING_MADE:
            log = archive.with_suffix(".log")
            logger.warning("no class archive was made (%d), drivers start without; see %s", code, log)

    def _forget_unused(self) -> None:
        """Remove archives of a Java or Spark that is no longer used. JVMs that have mapped one keep it."""
        before = time.time() - _KEPT_UNUSED_S
        for archive in self._directory.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                if max(_modified((archive, archive.with_suffix(_USED)))) < before:
                    for path in self._directory.glob(f"{archive.stem}.*"):
                        path.unlink()


def _reap(maker: subprocess.Popen[bytes]) -> int:
    with maker:  # leaving this block closes the input
        return maker.wait()


def _modified(paths: Iterable[Path]) -> list[float]:
    return [path.stat().st_mtime for path in paths if path.exists()]


def _can_share(java_home: Path) -> bool:
    """Return whether this Java has an archive of the JDK's classes, which Waymark's archive extends."""
    return any((real_home(java_home) / "lib" / "server").glob("classes*.jsa"))


def _fingerprint(java_home: Path) -> str:
    """Return a hash of everything that an archive depends on, and of this machine: several may share the directory."""
    real = real_home(java_home)
    release = real / "release"
    parts = [platform.node(), str(real), release.read_text() if release.exists() else "", version("pyspark")]
    spec = find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        jars = sorted((Path(place) / "jars").iterdir())
        parts += [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
