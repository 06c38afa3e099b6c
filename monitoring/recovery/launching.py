"""Start a job as its launch record says: each kind of record is a class in KINDS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Malformed, Refused, Unreachable
from monitoring.models.sealed_json import has_unreadable
from monitoring.reasons.launch import LaunchReason
from monitoring.reasons.reason import Reason
from monitoring.recovery import launch_command
from monitoring.recovery.launch_values import LaunchValues, NotRun

# A program for Waymark's job manager.
WAYMARK = "waymark"


class BadLaunch(ValueError):
    """A launch record is invalid. The reason has the field, its value, and what is allowed."""

    def __init__(self, field: str, value: object, allowed: Reason) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        self.reason = LaunchReason.BAD_FIELD(field=field, value=repr(value), allowed=allowed)
        super().__init__(str(self.reason))


@dataclass(frozen=True)
class LaunchOrder:
    """One start of a job. `job_id` is chosen before the launch.

    `restore_path` is "" only if the job may start without state. `named` has the IDs of all jobs in the engine's list
    just before the launch. `is_automatic`: no person requested the restore.
    """

    launch: Mapping[str, object]
    job_id: str
    job_name: str
    restore_path: str
    named: frozenset[str] = frozenset()
    is_automatic: bool = False


class StartRefused(Refused):
    """The launch failed. `engine_job_ids` has the failed jobs that it started, by the engine's list."""

    def __init__(self, refused: Refused, engine_job_ids: tuple[str, ...]) -> None:
        super().__init__(refused.status, refused.reason, refused.engine_text)
        self.engine_job_ids = engine_job_ids


class LaunchKind(Protocol):
    def check(self, launch: Mapping[str, object]) -> None:
        """Raise BadLaunch if this record can never start a job."""
        ...

    def repeatable(self, launch: Mapping[str, object]) -> bool:
        """Return whether a launch with an unknown outcome may be repeated.

        It may if the engine refuses a second job with the same ID.
        """
        ...

    def limit_s(self, launch: Mapping[str, object]) -> float:
        """Return the time limit of a launch in seconds, without the requests to the engine."""
        ...

    async def launch(self, client: FlinkClient, order: LaunchOrder) -> str:
        """Start the job under `order.job_id` and return the engine's job ID.

        Raises:
            StartRefused: the launch failed. It has the IDs of failed jobs that the launch started.
            EngineError: another failure.
        """
        ...


class ProgramLaunch:
    """Start an uploaded program with /jars/:id/run: a program of Waymark's job manager, or a jar on Flink."""

    def check(self, launch: Mapping[str, object]) -> None:
        jar_id = launch.get("jar_id")
        if not isinstance(jar_id, str) or not jar_id:
            raise BadLaunch("jar_id", jar_id, LaunchReason.PROGRAM_NEEDED())
        _check_parallelism(launch)
        arguments = launch.get("program_args") or []
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            raise BadLaunch("program_args", arguments, LaunchReason.TEXTS_NEEDED())
        if not isinstance(launch.get("configuration") or {}, dict):
            raise BadLaunch("configuration", launch.get("configuration"), LaunchReason.PAIRS_NEEDED())

    def repeatable(self, launch: Mapping[str, object]) -> bool:
        return True

    def limit_s(self, launch: Mapping[str, object]) -> float:
        return 0.0

    async def launch(self, client: FlinkClient, order: LaunchOrder) -> str:
        self.check(order.launch)
        launch = order.launch
        parallelism, arguments, configuration = (
            launch.get(name) for name in ("parallelism", "program_args", "configuration")
        )
        return await client.run_jar(
            str(launch["jar_id"]),
            job_id=order.job_id,
            entry_class=entry_class(launch),
            program_args=arguments if isinstance(arguments, list) else (),
            parallelism=parallelism if isinstance(parallelism, int) else None,
            savepoint_path=order.restore_path or None,
            configuration=_texts(configuration) if isinstance(configuration, dict) else None,
            job_name=order.job_name,
            automatic_restore=order.is_automatic and launch.get("kind", WAYMARK) == WAYMARK,
        )


class CommandLaunch:
    """Run an administrator's command in the worker, without a shell (launch_command.py)."""

    def check(self, launch: Mapping[str, object]) -> None:
        command = launch.get("command")
        try:
            launch_command.check(command)
        except launch_command.BadCommand as problem:
            raise BadLaunch("command", problem.value, problem.allowed) from problem
        _check_limit(launch.get("limit_s"))
        _check_parallelism(launch)
        parallelism, is_used = launch.get("parallelism"), launch_command.uses(command, "parallelism")
        if is_used and parallelism is None:
            raise BadLaunch("parallelism", None, LaunchReason.COUNT_IS_USED(place="{parallelism}"))
        if parallelism is not None and not is_used:
            raise BadLaunch("parallelism", parallelism, LaunchReason.COUNT_IS_NOT_USED(place="{parallelism}"))

    def repeatable(self, launch: Mapping[str, object]) -> bool:
        return launch_command.fixes_job_id(launch.get("command"))

    def limit_s(self, launch: Mapping[str, object]) -> float:
        limit = launch.get("limit_s")
        return float(limit if isinstance(limit, int) else launch_command.DEFAULT_LIMIT_S)

    async def launch(self, client: FlinkClient, order: LaunchOrder) -> str:
        self.check(order.launch)
        parallelism = order.launch.get("parallelism")
        values = LaunchValues(
            savepoint=order.restore_path,
            job_id=order.job_id,
            job_name=order.job_name,
            rest_url=client.url,
            parallelism=parallelism if isinstance(parallelism, int) else None,
        )
        try:
            return await launch_command.run(order.launch.get("command"), values, self.limit_s(order.launch))
        except NotRun:
            raise
        except Refused as refused:
            raise StartRefused(refused, await _new_jobs(client, order, "FAILED")) from refused
        except (Malformed, Unreachable):
            # The command may have started the job without printing its ID.
            new = await _new_jobs(client, order)
            if len(new) != 1:
                raise
            return new[0]


async def _new_jobs(client: FlinkClient, order: LaunchOrder, *states: str) -> tuple[str, ...]:
    """Return the IDs of new jobs with this name since the launch, none if the engine does not answer."""
    try:
        jobs = await client.jobs_overview()
    except EngineError:
        return ()
    new = [job for job in jobs if job.name == order.job_name and job.id not in order.named]
    return tuple(job.id for job in new if not states or job.state in states)


def _check_parallelism(launch: Mapping[str, object]) -> None:
    parallelism = launch.get("parallelism")
    if parallelism is not None and not (isinstance(parallelism, int) and parallelism >= 1):
        raise BadLaunch("parallelism", parallelism, LaunchReason.COUNT_NEEDED())


def _check_limit(limit: object) -> None:
    shortest, longest = launch_command.SHORTEST_LIMIT_S, launch_command.LONGEST_LIMIT_S
    if limit is not None and not (isinstance(limit, int) and shortest <= limit <= longest):
        raise BadLaunch("limit_s", limit, LaunchReason.SECONDS_NEEDED(shortest=shortest, longest=longest))


_PROGRAM = ProgramLaunch()
KINDS: dict[str, LaunchKind] = {WAYMARK: _PROGRAM, "flink-jar": _PROGRAM, "command": CommandLaunch()}


def kind_of(launch: Mapping[str, object]) -> LaunchKind:
    kind = launch.get("kind", WAYMARK)
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadLaunch("kind", kind, LaunchReason.KIND_NEEDED(kinds=list(KINDS)))
    return KINDS[kind]


def check_launch(launch: Mapping[str, object] | None) -> None:
    """Raise BadLaunch with the field's name if the launch record cannot start a job."""
    if launch is None:
        raise BadLaunch("kind", None, LaunchReason.START_UNKNOWN())
    if has_unreadable(launch):
        raise BadLaunch("configuration", "", LaunchReason.SECRET_UNREADABLE())
    kind_of(launch).check(launch)


def uploaded_program(launch: Mapping[str, object] | None) -> str | None:
    """Return the ID of the uploaded program of a checked launch record, None if the record has no program."""
    return str(launch["jar_id"]) if launch and kind_of(launch) is _PROGRAM else None


def is_command(launch: Mapping[str, object] | None) -> bool:
    """Return whether a checked launch record starts the job by a command."""
    return launch is not None and isinstance(kind_of(launch), CommandLaunch)


def entry_class(launch: Mapping[str, object] | None) -> str | None:
    value = (launch or {}).get("entry_class")
    return value if isinstance(value, str) and value else None


def _texts(configuration: Mapping[object, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in configuration.items()}
