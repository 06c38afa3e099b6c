"""The job manager process: leader election, dispatcher and REST server on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from checkpointing.clock import SystemClock
from checkpointing.durable_files import restrict_access
from checkpointing.ha.services import HighAvailabilityServices, HighAvailabilitySettings, make_services
from checkpointing.java import JavaNotFound, find_java
from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.launch_queue import LaunchQueue
from checkpointing.jobs.launcher import DriverLauncher, LaunchFailed
from checkpointing.jobs.launching.admission import Limits
from checkpointing.jobs.launching.chosen import ChosenLauncher
from checkpointing.jobs.launching.control_groups import DriverGroups, NoGroups, delegated_group
from checkpointing.jobs.launching.demand import gib
from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.environment import storage_variables
from checkpointing.jobs.launching.kubernetes import api as kubernetes
from checkpointing.jobs.launching.kubernetes.launcher import KubernetesLauncher, PodDefaults
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.launching.machine import limits_of, read_machine
from checkpointing.jobs.launching.temporary import TemporaryDirectories
from checkpointing.jobs.leadership import DispatcherContender
from checkpointing.jobs.loop import IoThreads, LoopIoExecutor, LoopTimer
from checkpointing.jobs.programs import ProgramStorage
from checkpointing.jobs.python_environments.environments import PythonEnvironments
from checkpointing.jobs.secret_keys import FILE_NAME, SecretKeys
from checkpointing.jobs.services import JobServices
from checkpointing.jobs.settings import DriversOnShutdown, JobManagerSettings
from checkpointing.jobs.unused_programs import unused_programs_removed
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles
from checkpointing.rest.app import make_app
from checkpointing.rest.archive import describe
from checkpointing.rest.job_manager import RecentLog
from checkpointing.storage.errors import StorageSilent
from checkpointing.storage.reachability import read_reachable

logger = logging.getLogger(__name__)

# Threads for work that belongs to no single job.
IO_THREADS = 16
_GRACEFUL_CONNECTIONS_S = 2
EXIT_FATAL = 70
_CLOSING_S = 30.0


class CannotServe(Exception):
    """The job manager cannot start. The text says why."""


def end_process(error: Exception) -> None:
    """End the process at once, as Flink does on a fatal error, so that a call that hangs keeps no other from leading.

    Drivers continue. The next leader adopts them once ZooKeeper has ended this process's session.
    """
    logger.critical("the job manager cannot continue and ends its process: %r", error)
    os._exit(EXIT_FATAL)


async def run(
    settings: JobManagerSettings,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = print,
    *,
    launcher: DriverLauncher | None = None,
    stop: asyncio.Event | None = None,
    end_process: Callable[[Exception], None] = end_process,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`. Raise CannotServe if the address is taken or ZooKeeper cannot be reached.

    `end_process` is called on any thread if the job manager cannot continue; see `DispatcherContender`.
    """
    stop = stop or asyncio.Event()
    listener, log = _listener(settings), RecentLog()
    with listener, log.attached():
        address = settings.advertised_address or _address(listener)
        io_threads = IoThreads(asyncio.get_running_loop(), settings.storage_timeout_s)
        io = io_threads.of("the election")
        await io.run(lambda: _close_state_directory(settings))
        ha = await io.run(lambda: _high_availability(settings))
        if launcher is None:
            launcher = await io.run(lambda: _launcher(settings, environ or os.environ, address))
        token_file = await io.run(lambda: _token_file(settings))
        limits = await io.run(lambda: _limits(settings))
        temporaries = await io.run(
            lambda: TemporaryDirectories(settings.state_directory, is_shared=settings.storage_is_shared)
        )
        secret_keys = await io.run(lambda: _secret_keys(settings))
        environments = _environments(settings, environ or os.environ)
        services = _services(
            settings, address, io_threads, ha, launcher, limits, token_file, temporaries, secret_keys, environments
        )
        dispatcher = Dispatcher(services, describe)
        contender = DispatcherContender(
            dispatcher, ha.leader_election, address, asyncio.get_running_loop(), end_process
        )
        try:
            app = make_app(dispatcher, settings.token, log)
            async with _served(app, listener, end_process), _signals(stop), unused_programs_removed(dispatcher):
                if await _done_before(stop, io.run(lambda: ha.leader_election.start(contender))):
                    mode = settings.high_availability.value
                    say(f"Job manager serves {address} · high availability {mode} · {_role(dispatcher)}")
                    await stop.wait()
                say("Job manager stops.")
                await dispatcher.give_up_leadership(end_drivers=settings.drivers_on_shutdown is DriversOnShutdown.STOP)
        finally:
            await _closed(io, ha)


async def _done_before(stop: asyncio.Event, starting: Coroutine[Any, Any, None]) -> bool:
    """Return whether `starting` ends before the stop. A starting leader may wait for storage that does not answer."""
    started, stopped = asyncio.ensure_future(starting), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            started.result()
        return started.done()
    finally:
        started.cancel()
        stopped.cancel()


async def _closed(io: LoopIoExecutor, ha: HighAvailabilityServices) -> None:
    try:
        await io.read("the high availability services", ha.close, silence_s=_CLOSING_S)
    except StorageSilent as error:
        logger.error("the job manager ends all the same: %s", error)


def _services(
    settings: JobManagerSettings,
    address: str,
    io_threads: IoThreads,
    ha: HighAvailabilityServices,
    launcher: DriverLauncher,
    limits: Limits,
    token_file: Path | None,
    temporaries: TemporaryDirectories,
    secret_keys: SecretKeys,
    environments: PythonEnvironments,
) -> JobServices:
    clock, timer = SystemClock(), LoopTimer(asyncio.get_running_loop())
    return JobServices(
        settings=settings,
        address=address,
        clock=clock,
        timer=timer,
        io=io_threads.of("the job manager", IO_THREADS),
        io_threads=io_threads,
        high_availability=ha,
        launcher=launcher,
        launch_queue=LaunchQueue(
            limits,
            launcher,
            clock,
            timer,
            start_limit_s=settings.registration_timeout_s,
            recovery_limit_s=2 * settings.reconcile_window_s,
        ),
        programs=ProgramStorage(settings.state_directory / "programs"),
        temporaries=temporaries,
        secret_keys=secret_keys,
        environments=environments,
        random=lambda: random.uniform(-1, 1),
        token_file=token_file,
        host_name=socket.gethostname(),
    )


def _limits(settings: JobManagerSettings) -> Limits:
    limits = limits_of(read_machine(), settings.driver_memory, settings.driver_limit, settings.driver_starts)
    memory = "any memory" if limits.memory is None else f"{gib(limits.memory)} of memory"
    number = "any number" if limits.drivers is None else str(limits.drivers)
    logger.info("drivers of this machine: %s, %s of them, %d starting at a time", memory, number, limits.starting)
    return limits


def _high_availability(settings: JobManagerSettings) -> HighAvailabilityServices:
    return make_services(
        HighAvailabilitySettings(
            storage_directory=settings.state_directory / "ha",
            mode=settings.high_availability,
            hosts=settings.zookeeper_hosts,
            root=settings.zookeeper_root,
            cluster_id=settings.cluster_id,
            session_timeout_s=settings.zookeeper_session_timeout_s,
            access=_zookeeper_access(settings),
        ),
        read_reachable,
    )


def _launcher(settings: JobManagerSettings, environ: Mapping[str, str], address: str) -> DriverLauncher:
    processes, pods = _local_launcher(settings, environ, address), None
    if settings.kubernetes is not None and kubernetes.is_installed():
        defaults = PodDefaults(
            settings.kubernetes.namespace,
            settings.cluster_id,
            settings.pod_start_timeout_s,
            settings.checkpoint_directory,
            settings.savepoint_directory,
        )
        api, site = kubernetes.KubernetesApi(settings.kubernetes), _site(settings, address)
        pods = KubernetesLauncher(api, defaults, site, environ, _program_variables(settings))
    return ChosenLauncher(processes, pods, settings.launcher)


def _site(settings: JobManagerSettings, address: str) -> Site:
    return Site(settings.storage_is_shared, address, settings.zookeeper_hosts)


def _program_variables(settings: JobManagerSettings) -> Collection[str]:
    return (*settings.program_environment, *storage_variables(settings.restore_roots.roots))


def _local_launcher(settings: JobManagerSettings, environ: Mapping[str, str], address: str) -> LocalDriverLauncher:
    def java_home() -> Path:
        try:
            return find_java(environ, settings.state_directory / "java").home
        except JavaNotFound as error:
            raise LaunchFailed(str(error)) from error

    return LocalDriverLauncher(
        environ,
        java_home,
        settings.state_directory,
        site=_site(settings, address),
        default_master=settings.spark_master,
        spares=settings.spare_drivers,
        groups=_driver_groups(),
        program_variables=_program_variables(settings),
    )


def _driver_groups() -> DriverGroups | None:
    """Return the control groups of drivers. Log once whether drivers have a memory limit."""
    found = delegated_group()
    if isinstance(found, NoGroups):
        logger.info("drivers have no memory limit: %s", found.value)
        return None
    groups = DriverGroups(found)
    try:
        groups.prepare()
    except OSError as error:
        logger.warning("drivers have no memory limit: %s cannot be divided: %s", found, error)
        return None
    logger.info("each driver has a memory limit, in a control group below %s", found)
    return groups


def _zookeeper_access(settings: JobManagerSettings) -> ZooKeeperAccessFiles | None:
    """Return the access with the password in a file, because drivers read it from there."""
    access, password = settings.zookeeper_access, settings.zookeeper_password
    if access is None or not password or access.password_file:
        return access
    return replace(access, password_file=str(_secret_file(settings, "zookeeper-password", password)))


def _token_file(settings: JobManagerSettings) -> Path | None:
    """Return the file with the token for drivers. An environment variable would be visible to other processes."""
    if settings.token is None or settings.token_file is not None:
        return settings.token_file
    return _secret_file(settings, "token", settings.token)


def _environments(settings: JobManagerSettings, environ: Mapping[str, str]) -> PythonEnvironments:
    return PythonEnvironments(
        settings.environment_directory,
        environ,
        SystemClock(),
        limit_s=settings.environment_timeout_s,
        most_bytes=settings.max_environment_bytes,
    )


def _secret_keys(settings: JobManagerSettings) -> SecretKeys:
    try:
        return SecretKeys.read(settings.secret_keys, settings.state_directory)
    except (OSError, ValueError) as error:
        file = settings.state_directory / FILE_NAME
        raise CannotServe(f"The job manager cannot use the key that encrypts secrets in {file}: {error}") from error


def _secret_file(settings: JobManagerSettings, name: str, secret: str) -> Path:
    path = settings.state_directory / name
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)
    return path


def _close_state_directory(settings: JobManagerSettings) -> None:
    """Restrict the state directory to this account: it contains programs, settings with secrets, logs and state."""
    try:
        restrict_access(settings.state_directory)
    except OSError as error:
        raise CannotServe(f"The job manager cannot use {settings.state_directory}: {error.strerror}") from error


def _listener(settings: JobManagerSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=256)
    except OSError as error:
        raise CannotServe(
            f"The job manager cannot listen on {settings.host}:{settings.port}: {error.strerror}"
        ) from error


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (compared, not bound)
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _role(dispatcher: Dispatcher) -> str:
    return "leader" if dispatcher.leading else "standby"


@contextlib.asynccontextmanager
async def _served(
    app: object, listener: socket.socket, end_process: Callable[[Exception], None]
) -> AsyncIterator[None]:
    """Serve the app on `listener` while the block runs.

    Call `end_process` if it ends earlier. uvicorn gets no signals.
    """
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="websockets-sansio",
        ws_max_size=64 * 1024 * 1024,
        timeout_graceful_shutdown=_GRACEFUL_CONNECTIONS_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))

    def ended(_: asyncio.Task[None]) -> None:
        if not server.should_exit:  # a leader that cannot be reached would keep all others from leading
            end_process(CannotServe("the REST server ended unexpectedly"))

    serving.add_done_callback(ended)
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110  (uvicorn has no event for it)
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def _signals(stop: asyncio.Event) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
