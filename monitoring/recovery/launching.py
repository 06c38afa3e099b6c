"""How a job is started again, by the kind of its launch record. A new kind is a class and a line in KINDS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import Malformed, Unreachable
from monitoring.models.sealed_json import has_unreadable
from monitoring.recovery import launch_command


class BadLaunch(ValueError):
    """A launch record that cannot be used: which field, what it is, what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"launch.{field} is {value!r}: {allowed}.")
        self.field, self.value, self.allowed = field, value, allowed


@dataclass(frozen=True)
class LaunchOrder:
    """`job_id` is fixed before the launch; `restore_path` is "" only where the job was allowed to start empty.
    `named`: the ids of all jobs that the engine named right before."""

    launch: Mapping[str, object]
    job_id: str
    job_name: str
    restore_path: str
    named: frozenset[str] = frozenset()


class LaunchKind(Protocol):
    def check(self, launch: Mapping[str, object]) -> None:
        """Raise BadLaunch when this record could never start a job."""
        ...

    def repeatable(self, launch: Mapping[str, object]) -> bool:
        """Whether a second launch under the same job id is refused by the engine, so that one whose fate nobody knows
        may be sent again."""
        ...

    async def launch(self, client: FlinkClient, order: LaunchOrder) -> str:
        """Start it under `order.job_id` and return the id the engine gave. Raises EngineError."""
        ...


class ProgramLaunch:
    """A program that was uploaded to the cluster, through /jars/:id/run: our job manager's, or a jar on Flink."""

    def check(self, launch: Mapping[str, object]) -> None:
        jar_id = launch.get("jar_id")
        if not isinstance(jar_id, str) or not jar_id:
            raise BadLaunch("jar_id", jar_id, "a program is needed: the id of one on the cluster, or a new one")
        parallelism = launch.get("parallelism")
        if parallelism is not None and not (isinstance(parallelism, int) and parallelism >= 1):
            raise BadLaunch("parallelism", parallelism, "a whole number from 1 is needed, or nothing")
        arguments = launch.get("program_args") or []
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            raise BadLaunch("program_args", arguments, "a list of texts is needed")
        if not isinstance(launch.get("configuration") or {}, dict):
            raise BadLaunch("configuration", launch.get("configuration"), "keys and values are needed")

    def repeatable(self, launch: Mapping[str, object]) -> bool:
        return True

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
        )


class CommandLaunch:
    """A command of an administrator's, run by the worker without a shell (launch_command.py)."""

    def check(self, launch: Mapping[str, object]) -> None:
        try:
            launch_command.check(launch.get("command"))
        except launch_command.BadCommand as problem:
            raise BadLaunch("command", problem.value, problem.allowed) from problem

    def repeatable(self, launch: Mapping[str, object]) -> bool:
        return launch_command.fixes_job_id(launch.get("command"))

    async def launch(self, client: FlinkClient, order: LaunchOrder) -> str:
        self.check(order.launch)
        command = order.launch.get("command")
        try:
            return await launch_command.run(command, order.job_id, order.job_name, order.restore_path)
        except (Malformed, Unreachable):
            # It may have started the job all the same, under an id that it kept to itself.
            jobs = await client.jobs_overview()
            new = [job.id for job in jobs if job.name == order.job_name and job.id not in order.named]
            if len(new) != 1:
                raise
            return new[0]


_PROGRAM = ProgramLaunch()
KINDS: dict[str, LaunchKind] = {"waymark": _PROGRAM, "flink-jar": _PROGRAM, "command": CommandLaunch()}


def kind_of(launch: Mapping[str, object]) -> LaunchKind:
    kind = launch.get("kind", "waymark")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadLaunch("kind", kind, f"one of {', '.join(KINDS)} is needed")
    return KINDS[kind]


def check_launch(launch: Mapping[str, object] | None) -> None:
    """Raise BadLaunch, naming the field, when the job could not be started by it."""
    if launch is None:
        raise BadLaunch("kind", None, "Waymark does not know how this job was started, so it cannot start it")
    if has_unreadable(launch):
        raise BadLaunch("configuration", "", "it holds a secret that no key opens which is set: enter it again")
    kind_of(launch).check(launch)


def uploaded_program(launch: Mapping[str, object] | None) -> str | None:
    """The id of the uploaded program that it starts, of a record that was checked; None: it starts none."""
    return str(launch["jar_id"]) if launch and kind_of(launch) is _PROGRAM else None


def entry_class(launch: Mapping[str, object] | None) -> str | None:
    value = (launch or {}).get("entry_class")
    return value if isinstance(value, str) and value else None


def _texts(configuration: Mapping[object, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in configuration.items()}
