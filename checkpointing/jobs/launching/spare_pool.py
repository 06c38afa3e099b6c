"""The pool of spare drivers: how many there are, for which jobs, and for how long.

Spare drivers wait for the jobs that run here. Their signatures are those of drivers that this job manager started or
adopted and that are running or have just ended. One thread manages the pool while there is such a job.
"""

from __future__ import annotations

import json
import logging
import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.durable_files import append_privately, make_directory
from checkpointing.ids import new_id
from checkpointing.jobs.attempts import LOG_NAME
from checkpointing.jobs.launcher import LaunchFailed
from checkpointing.jobs.launching.admission import Load
from checkpointing.jobs.launching.demand import demand_of
from checkpointing.jobs.launching.deployment import deployment_of
from checkpointing.jobs.launching.environment import process_environment
from checkpointing.jobs.launching.processes import command_line, write_private
from checkpointing.jobs.launching.python import python_of
from checkpointing.jobs.launching.signature import Signature, signature_of
from checkpointing.jobs.launching.spare_driver import SPARE_NAME, SpareDriver
from checkpointing.jobs.launching.temporary import TemporaryDirectories
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec, SpareSpec
from checkpointing.model.messages import MalformedMessage

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "spares"
_LOOK_S = 1.0
_HAND_OVER_S = 3.0


@dataclass(frozen=True)
class SpareLimits:
    """Times in seconds.

    `start_delay_s` leaves the processor to a job that starts. `retry_delay_s` follows a spare that died.

    `kept_without_job_s` covers the delay of a restart: a job that waits for it has no driver but needs its spare
    driver. `swept_after_s`: a younger directory without a process may belong to a process that is just being started.
    """

    start_delay_s: float = 10.0
    retry_delay_s: float = 60.0
    kept_without_job_s: float = 300.0
    max_age_s: float = 6 * 3600.0
    swept_after_s: float = 60.0


@dataclass
class _Job:
    """The newest driver of one signature. `has_ended` is called until it returns True."""

    spec: DriverSpec
    has_ended: Callable[[], bool]
    started_s: float
    ended_s: float | None = None


class SparePool:
    """The pool. `command` holds Python's arguments that start a spare; the path of its specification comes last.

    `room` limits what spare drivers may use; None means no limit. `load` is what the running ones use. Usable on any
    thread.
    """

    def __init__(
        self,
        size: int,
        directory: Path,
        command: Sequence[str],
        environment: Callable[[DriverSpec], Mapping[str, str]],
        temporaries: TemporaryDirectories,
        clock: Clock,
        limits: SpareLimits | None = None,
        on_started: Callable[[int, DriverSpec], None] = lambda pid, spec: None,
    ) -> None:
        self.directory = directory
        self.room: Load | None = None
        self.load = Load()
        self._size = size
        self._command = command
        self._environment = environment
        self._temporaries = temporaries
        self._clock = clock
        self._limits = limits or SpareLimits()
        self._on_started = on_started
        self._jobs: dict[Signature, _Job] = {}
        self._spares: list[SpareDriver] = []
        self._not_before: dict[Signature, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> int:
        """Return how many spare drivers wait with a started session."""
        with self._changed:
            return sum(spare.is_ready for spare in self._spares)

    def take(self, spec: DriverSpec, spec_path: Path) -> subprocess.Popen[bytes] | None:
        """Return the process of a spare driver that runs `spec` from now on, or None if no spare driver took it."""
        signature = signature_of(spec)
        spare = self._best(signature) if signature is not None else None
        if spare is None:
            return None
        log = spec_path.parent / LOG_NAME
        log.unlink(missing_ok=True)
        log.hardlink_to(spare.directory / LOG_NAME)
        if spare.hand_over(spec_path, self._clock, _HAND_OVER_S):
            return spare.popen
        # Try only one spare driver that does not answer, because the attempt has waited for it.
        logger.warning("spare driver %d did not take attempt %d of job %s", spare.popen.pid, spec.attempt, spec.job_id)
        log.unlink(missing_ok=True)
        shutil.rmtree(spare.directory, ignore_errors=True)
        return None

    def _best(self, signature: Signature) -> SpareDriver | None:
        with self._changed:
            fitting = [spare for spare in self._spares if spare.signature == signature and spare.is_alive]
            if not fitting:
                return None
            best = max(fitting, key=lambda spare: (spare.is_ready, -spare.started_s))
            self._spares.remove(best)
            self._spares_changed()
            return best

    def wait_for(self, spec: DriverSpec, has_ended: Callable[[], bool]) -> None:
        """Keep spare drivers for the next attempt of `spec`, whose driver runs."""
        signature = signature_of(spec)
        if not self._size or signature is None:
            return
        with self._changed:
            self._jobs.pop(signature, None)
            self._jobs[signature] = _Job(spec, has_ended, self._clock.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="spare-drivers", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End all spares, and start none until a driver runs again."""
        with self._changed:
            self._jobs.clear()
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    # --- the thread ---

    def _run(self) -> None:
        with self._changed:
            while self._jobs and self._thread is threading.current_thread():
                self._replace_spares(self._clock.monotonic())
                self._changed.wait(_LOOK_S)
            for spare in self._spares:
                self._end(spare)
            self._spares.clear()
            self._spares_changed()
            if self._thread is threading.current_thread():
                self._thread = None

    def _replace_spares(self, now: float) -> None:
        self._forget_jobs(now)
        wanted = self._wanted()
        kept: list[SpareDriver] = []
        for spare in sorted(self._spares, key=lambda spare: -spare.started_s):
            if not spare.is_alive:
                logger.warning("spare driver %d ended by itself; its log: %s", spare.popen.pid, spare.directory)
                spare.kill()  # ends the processes that it started, and closes its connection
                self._not_before[spare.signature] = now + self._limits.retry_delay_s
            elif now - spare.started_s > self._limits.max_age_s or wanted[spare.signature] == 0:
                self._end(spare)
            elif not self._has_room(sum((each.load for each in kept), spare.load)):
                self._end(spare)  # jobs need the memory of this spare driver
            else:
                wanted[spare.signature] -= 1
                kept.append(spare)
        self._spares = kept
        for signature in wanted.elements():
            self._start(signature, now)
        self._spares_changed()

    def _has_room(self, load: Load) -> bool:
        room = self.room
        return room is None or (load.memory <= room.memory and load.drivers <= room.drivers)

    def _spares_changed(self) -> None:
        self.load = sum((spare.load for spare in self._spares), Load())

    def _forget_jobs(self, now: float) -> None:
        for signature, job in list(self._jobs.items()):
            if job.ended_s is None and job.has_ended():
                job.ended_s = now
            if job.ended_s is not None and now - job.ended_s > self._limits.kept_without_job_s:
                del self._jobs[signature]

    def _wanted(self) -> Counter[Signature]:
        """Return how many spare drivers each signature gets, beginning with the one that started last."""
        newest_first = list(reversed(self._jobs))
        return Counter(newest_first[number % len(newest_first)] for number in range(self._size if newest_first else 0))

    def _start(self, signature: Signature, now: float) -> None:
        job = self._jobs[signature]
        is_early = now < max(job.started_s + self._limits.start_delay_s, self._not_before.get(signature, now))
        has_room = self._has_room(sum((spare.load for spare in self._spares), _load(job.spec)))
        if is_early or job.ended_s is not None or not has_room:
            return
        self._sweep()
        try:
            self._spares.append(self._started(job.spec, signature, now))
        except (OSError, LaunchFailed) as error:
            logger.warning("no spare driver could be started: %s", error)
            self._not_before[signature] = now + self._limits.retry_delay_s

    def _started(self, spec: DriverSpec, signature: Signature, now: float) -> SpareDriver:
        directory = self.directory / new_id()
        make_directory(directory)
        spec_path = directory / SPARE_NAME
        spare_spec = SpareSpec(str(directory), socket.gethostname(), spec.parallelism, dict(spec.configuration))
        write_private(spec_path, json.dumps(spare_spec.to_json()))
        ours, its = socket.socketpair()
        with its, self._temporaries.new() as temporary, append_privately(directory / LOG_NAME) as log:
            popen = subprocess.Popen(
                [python_of(spec.configuration), *self._command, str(spec_path)],
                cwd=directory,
                env=process_environment(self._environment(spec), temporary.path, spec),
                pass_fds=(temporary.lock,),
                stdin=its.fileno(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._on_started(popen.pid, spec)
        return SpareDriver(popen, ours, directory, signature, _load(spec), now)

    def _end(self, spare: SpareDriver) -> None:
        spare.kill()
        shutil.rmtree(spare.directory, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove the directories of this machine's spare drivers whose process has ended."""
        for path in self.directory.glob(f"*/{SPARE_NAME}"):
            try:
                age_ms = self._clock.now_ms() - path.stat().st_mtime_ns // 1_000_000
                spec = SpareSpec.from_json(json.loads(path.read_text()))
            except (OSError, ValueError, MalformedMessage):
                continue  # another job manager on this machine is writing the file
            if age_ms > self._limits.swept_after_s * 1000 and spec.host == socket.gethostname() and not _runs(path):
                shutil.rmtree(path.parent, ignore_errors=True)


def _load(spec: DriverSpec) -> Load:
    try:
        demand = demand_of(spec.configuration, deployment_of(spec.configuration, parallelism=spec.parallelism))
    except InvalidConfiguration:  # an earlier version accepted the job
        demand = None
    return Load(memory=demand.memory if demand is not None else 0, drivers=1)


def _runs(spec_path: Path) -> bool:
    """Return whether a process on this machine has the spare's specification in its command line."""
    processes = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return any(str(spec_path) in command_line(pid) for pid in processes)
