"""The cache of Python environments: a directory for each, which is never moved, because scripts in it hold its path.

    <key>-<random>/environment/   the environment, with `bin/python`
    <key>-<random>/ready.json     written last: a directory without it is incomplete, and no job uses it

The key is a hash of the content and of the Python that the environment is made for. Two job managers that make the same
environment at the same time make two; the one that no job uses is removed. All methods block.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.durable_files import make_directory, write_durably
from checkpointing.ids import new_id
from checkpointing.jobs.python_environments.preparation import PreparedPython, SourceKind

READY = "ready.json"
_VERSION = 2  # increased when drivers need another package, so that environments are made again
_NAME = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}")


def key_of(kind: SourceKind, content_sha256: str) -> str:
    """Return the key of the environment that this process's Python makes of this content on this kind of machine."""
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    made_of = [_VERSION, kind.value, content_sha256, *sys.version_info[:3], base, sysconfig.get_platform()]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class CachedEnvironment:
    directory: Path

    @property
    def home(self) -> Path:
        return self.directory / "environment"

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def is_usable(self) -> bool:
        return (self.directory / READY).is_file() and os.access(self.python, os.X_OK)

    @property
    def prepared(self) -> PreparedPython:
        return PreparedPython(self.directory.name, str(self.python))


class EnvironmentCache:
    """The cached environments in `directory`. An incomplete directory older than `abandoned_after_s` is removed."""

    def __init__(self, directory: Path, clock: Clock, abandoned_after_s: float) -> None:
        self.directory = directory
        self._clock = clock
        self._abandoned_after_s = abandoned_after_s
        self._lock = threading.Lock()
        self._being_made: set[str] = set()

    def find(self, key: str) -> CachedEnvironment | None:
        """Return the environment with this key and record its use. Return None if there is none."""
        with self._lock:
            for environment in self._all(f"{key}-*"):
                if environment.is_usable:
                    self._use(environment)
                    return environment
        return None

    def find_archive(self, location: str, size: int) -> CachedEnvironment | None:
        """Return the environment that was made from this remote archive and record its use, or None if none was."""
        with self._lock:
            for environment in self._all():
                made = {"version": _VERSION, "source": [location, size, sysconfig.get_platform()]}
                if _read(environment) == made and environment.is_usable:
                    self._use(environment)
                    return environment
        return None

    @contextlib.contextmanager
    def new(self, key: str) -> Iterator[CachedEnvironment]:
        """Yield a directory to make an environment in. Remove it afterwards unless `publish` was called."""
        environment = CachedEnvironment(self.directory / f"{key}-{new_id()[:8]}")
        with self._lock:
            self._being_made.add(environment.directory.name)
        try:
            make_directory(environment.directory)
            yield environment
        finally:
            with self._lock:
                self._being_made.discard(environment.directory.name)
            if not (environment.directory / READY).is_file():
                shutil.rmtree(environment.directory, ignore_errors=True)

    def publish(self, environment: CachedEnvironment, source: tuple[str, int] | None) -> None:
        """Let jobs use the environment. `source`: the location and the size of a remote archive."""
        os.sync()  # write all files of the environment to the disk before READY
        made_of = None if source is None else [*source, sysconfig.get_platform()]
        write_durably(environment.directory / READY, json.dumps({"version": _VERSION, "source": made_of}))
        self._use(environment)

    def remove_unused(self, needed: Collection[str], before_ms: int) -> list[str]:
        """Remove environments that are not `needed` and were last used before `before_ms`; return their names."""
        abandoned_ms = self._clock.now_ms() - round(self._abandoned_after_s * 1000)
        removed = []
        for environment in self._all():
            ready = environment.directory / READY
            with self._lock, contextlib.suppress(FileNotFoundError):
                if environment.directory.name in {*needed, *self._being_made}:
                    continue
                is_ready = ready.is_file()
                last = ready if is_ready else environment.directory
                if last.stat().st_mtime_ns // 1_000_000 >= (before_ms if is_ready else abandoned_ms):
                    continue
                ready.unlink(missing_ok=True)
            shutil.rmtree(environment.directory, ignore_errors=True)
            removed.append(environment.directory.name)
        return removed

    def _use(self, environment: CachedEnvironment) -> None:
        now = self._clock.now_ms() * 1_000_000
        os.utime(environment.directory / READY, ns=(now, now))

    def _all(self, pattern: str = "*") -> list[CachedEnvironment]:
        found = sorted(path for path in self.directory.glob(pattern) if _NAME.fullmatch(path.name))
        return [CachedEnvironment(path) for path in found]


def _read(environment: CachedEnvironment) -> dict[str, object]:
    try:
        found = json.loads((environment.directory / READY).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
