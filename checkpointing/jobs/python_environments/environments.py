"""Prepares the environment of a job: finds it in the cache, or makes it. Each content is made once at a time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
import venv
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.jobs.launching.python import NEEDED, problem_of
from checkpointing.jobs.python_environments.archives import unpack
from checkpointing.jobs.python_environments.cache import CachedEnvironment, EnvironmentCache, key_of
from checkpointing.jobs.python_environments.commands import Deadline, pip_command, pip_environment, run
from checkpointing.jobs.python_environments.failures import EnvironmentFailed, install_failed
from checkpointing.jobs.python_environments.preparation import Preparation, PreparedPython, SourceKind, Step
from checkpointing.jobs.python_environments.source import EnvironmentSource, has_hashes, size_of
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.storage.checksums import sha256_of
from checkpointing.storage.locations import is_local, local_path, parent
from checkpointing.storage.opening import files_for

_ABANDONED_S = 3600.0
_GRACE_S = 10.0
# Drivers need these (launching/python.py). pip chooses versions that fit the job's own requirements.
_OURS = ("pyspark>=4.0,<4.4", "kazoo[sasl]", *(name for name in NEEDED if name not in ("pyspark", "kazoo")))


class PythonEnvironments:
    """Prepares environments.

    `environ` is the job manager's environment; pip gets the same variables as programs, and its own.

    `limit_s` limits the time that one environment takes, `most_bytes` the size of an unpacked archive.
    """

    def __init__(
        self, directory: Path, environ: Mapping[str, str], clock: Clock, *, limit_s: float, most_bytes: int
    ) -> None:
        self._environment = pip_environment(environ)
        self._clock = clock
        self._limit_s = limit_s
        self._most_bytes = most_bytes
        self._cache = EnvironmentCache(directory, clock, limit_s + _ABANDONED_S)
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}

    async def prepare(self, source: EnvironmentSource, preparation: Preparation) -> PreparedPython:
        """Return the prepared Python.

        If cancelled, stop the work. Raise EnvironmentFailed; its text begins with the setting.
        """
        work = in_daemon_thread(lambda: self._prepare(source, preparation), f"environment by {source.kind.value}")
        result = asyncio.wrap_future(work)
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(self._limit_s + _GRACE_S):  # a read that hangs cannot be stopped
                preparation.prepared = await asyncio.shield(result)
        except TimeoutError as error:
            text = f"reading or writing did not end within {self._limit_s:g} s (WAYMARK_ENVIRONMENT_TIMEOUT)"
            message = f"{source.label}: {text}"
            raise EnvironmentFailed(message, is_mistake=False) from error
        finally:
            preparation.stop.set()
            preparation.has_failed = preparation.prepared is None
        return preparation.prepared

    def remove_unused(self, needed: Collection[str], before_ms: int) -> list[str]:
        """Remove unused environments, as EnvironmentCache does. Blocks."""
        return self._cache.remove_unused(needed, before_ms)

    def _prepare(self, source: EnvironmentSource, preparation: Preparation) -> PreparedPython:
        deadline = Deadline(self._clock, self._limit_s, preparation)
        try:
            if source.kind is SourceKind.REQUIREMENTS:
                with _missing_is_a_mistake(str(source.location)):
                    text = source.read_text()
                return self._of_requirements(text, preparation, deadline).prepared
            return self._of_archive(str(source.location), preparation, deadline).prepared
        except InvalidConfiguration as error:
            raise EnvironmentFailed(str(error), is_mistake=True) from error
        except EnvironmentFailed as error:
            message = f"{source.label}: {error}"
            raise EnvironmentFailed(message, is_mistake=error.is_mistake, details=error.details) from error
        except OSError as error:
            message = f"{source.label}: the environment could not be made in {self._cache.directory}: {error}"
            raise EnvironmentFailed(message, is_mistake=False) from error

    def _of_requirements(self, text: str, preparation: Preparation, deadline: Deadline) -> CachedEnvironment:
        def install(made: CachedEnvironment) -> None:
            preparation.step = Step.INSTALLING
            self._install(made, text, deadline)

        key = key_of(SourceKind.REQUIREMENTS, hashlib.sha256(text.encode()).hexdigest())
        advice = "add them to the requirements, with their hashes" if has_hashes(text) else ""
        return self._find_or_make(key, install, advice, preparation, deadline)

    def _find_or_make(
        self,
        key: str,
        make: Callable[[CachedEnvironment], None],
        advice: str,
        preparation: Preparation,
        deadline: Deadline,
        remote: tuple[str, int] | None = None,
    ) -> CachedEnvironment:
        """Return the environment with this key. `advice`: what to do if a package that drivers need is missing."""
        with self._one_at_a_time(key, preparation, deadline):
            found = self._cache.find(key)
            if found is not None:
                return found
            with self._cache.new(key) as made:
                make(made)
                preparation.step = Step.CHECKING
                _check(made, advice)
                self._cache.publish(made, remote)
                return made

    def _install(self, made: CachedEnvironment, text: str, deadline: Deadline) -> None:
        """Install the requirements, and the packages that drivers need.

        If the requirements have hashes, they must also name those packages, because pip then requires all hashes.
        """
        file = made.directory / "requirements.txt"
        file.write_text(text)
        venv.create(made.home, symlinks=True)
        more = ("--require-hashes",) if has_hashes(text) else _OURS
        log = made.directory / "pip.log"
        command = pip_command(made.python, log, "-r", str(file), *more)
        code, output = run(command, self._environment, made.directory, deadline)
        if code < 0:
            raise EnvironmentFailed(f"pip was ended by signal {-code}", is_mistake=False, details="\n".join(output))
        if code != 0:
            raise install_failed(output, log)

    def _of_archive(self, location: str, preparation: Preparation, deadline: Deadline) -> CachedEnvironment:
        """Download a remote archive once for each name and size. Compare the content of a local one each time."""
        if is_local(location):
            return self._of_file(Path(local_path(location)), preparation, deadline, None)
        with self._one_at_a_time(location, preparation, deadline):
            with _missing_is_a_mistake(location):
                size = size_of(location)
            known = None if size is None else self._cache.find_archive(location, size)
            if known is not None:
                return known
            with self._cache.new(hashlib.sha256(location.encode()).hexdigest()[:32]) as temporary:
                archive = temporary.directory / "archive"
                with _missing_is_a_mistake(location):
                    files_for(location).get(location, archive, like="0" * 64)
                return self._of_file(archive, preparation, deadline, (location, archive.stat().st_size))

    def _of_file(
        self, archive: Path, preparation: Preparation, deadline: Deadline, remote: tuple[str, int] | None
    ) -> CachedEnvironment:
        def unpack_archive(made: CachedEnvironment) -> None:
            preparation.step = Step.UNPACKING
            self._unpack(made, archive, deadline)

        with _missing_is_a_mistake(str(archive)):
            key = key_of(SourceKind.ARCHIVE, sha256_of(archive))
        return self._find_or_make(key, unpack_archive, "pack it with them", preparation, deadline, remote)

    def _unpack(self, made: CachedEnvironment, archive: Path, deadline: Deadline) -> None:
        made.home.mkdir()
        unpack(archive, made.home, self._most_bytes, deadline.check)
        if not made.python.exists():
            raise EnvironmentFailed("the archive has no bin/python at its top", is_mistake=True)
        fix = made.home / "bin" / "conda-unpack"
        if fix.is_file():
            code, output = run([str(made.python), str(fix)], self._environment, made.directory, deadline)
            if code != 0:
                last = (output or [""])[-1]
                raise EnvironmentFailed(f"bin/conda-unpack of the archive failed: {last}", is_mistake=True)

    @contextlib.contextmanager
    def _one_at_a_time(self, key: str, preparation: Preparation, deadline: Deadline) -> Iterator[None]:
        """Wait while another job prepares the same environment. If that job fails, this one tries by itself."""
        with self._lock:
            lock = self._making.setdefault(key, threading.Lock())
        before = preparation.step
        while not lock.acquire(timeout=0.05):
            preparation.step = Step.WAITING
            deadline.check()
        preparation.step = before
        try:
            yield
        finally:
            lock.release()


@contextlib.contextmanager
def _missing_is_a_mistake(location: str) -> Iterator[None]:
    """Raise EnvironmentFailed if a file that the job names is missing.

    If other files are in the same directory, this is a mistake, and a restart does not help. Otherwise the file system
    may not be mounted.
    """
    try:
        yield
    except FileNotFoundError as error:
        holder = parent(location)
        raise EnvironmentFailed("the file does not exist", is_mistake=bool(files_for(holder).names(holder))) from error


def _check(made: CachedEnvironment, advice: str) -> None:
    problem = problem_of(str(made.python))
    if problem:
        text = f"the environment cannot run a driver; {problem}"
        raise EnvironmentFailed(f"{text}; {advice}" if advice else text, is_mistake=True)
