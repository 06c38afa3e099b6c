"""Start a job by a command, such as `flink run-application …`: a list of arguments, without a shell.

launch_values.py replaces the placeholders in the arguments. A command that passes `{job_id}` to Flink
(`-D$internal.pipeline.job-id={job_id}`) may be repeated if its outcome is not known. Any other command runs only once
and must print the ID as Flink's command line does: "JobID <32 hexadecimal digits>".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from pathlib import Path

from monitoring.engine.errors import Malformed, Refused, Unreachable
from monitoring.reasons.launch import LaunchReason
from monitoring.reasons.reason import Reason
from monitoring.recovery.launch_values import PLACEHOLDERS, LaunchValues, NotRun, environment_name, placeholders

DEFAULT_LIMIT_S = 120
SHORTEST_LIMIT_S, LONGEST_LIMIT_S = 5, 1_800
LONGEST = 4096
_SHELL = re.compile(r"[;&|<>`\n\r\0]|\$[({]")
_JOB_ID = re.compile(rb"JobID:? ([0-9a-f]{32})\b")
_SAID_LIMIT = 2000
# A command gets only these variables of the worker's environment, and the launch's values: no secrets of Waymark.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "FLINK_HOME", "FLINK_CONF_DIR", "KUBECONFIG")


class BadCommand(ValueError):
    def __init__(self, value: object, allowed: Reason) -> None:
        super().__init__(f"{value!r}: {allowed}")
        self.value = value
        self.allowed = allowed


class TimedOut(Unreachable):
    """The command was killed at its time limit. It may have started the job."""


def check(command: object) -> list[str]:
    """Return the command if it is valid. Raise BadCommand with the invalid argument."""
    if not isinstance(command, list) or not command or not all(isinstance(each, str) for each in command):
        raise BadCommand(command, LaunchReason.ARGUMENTS_NEEDED())
    for argument in command:
        _check_argument(argument)
    if not command[0].startswith("/"):
        raise BadCommand(command[0], LaunchReason.ABSOLUTE_PATH_NEEDED())
    if not uses(command, "savepoint"):
        raise BadCommand(" ".join(command)[:200], LaunchReason.SAVEPOINT_NEEDED(place="{savepoint}"))
    return command


def fixes_job_id(command: object) -> bool:
    return uses(command, "job_id")


def uses(command: object, placeholder: str) -> bool:
    """Return whether a checked command uses the placeholder or its environment variable."""
    if not isinstance(command, list):
        return False
    return placeholder in placeholders(command) or any(environment_name(placeholder) in each for each in command)


async def run(command: object, values: LaunchValues, limit_s: float) -> str:
    """Run the command to its end, within `limit_s`, and return the engine's job ID.

    Raises:
        NotRun: the command could not be run.
        Refused: the command failed.
        TimedOut: the command did not end in time.
        Malformed: the command succeeded but did not print the job's ID.
    """
    checked = check(command)
    if not values.savepoint:
        raise NotRun(LaunchReason.NO_SAVEPOINT())
    filled = values.filled(checked)
    if not _runnable(filled[0]):
        raise NotRun(LaunchReason.NO_SUCH_PROGRAM(program=filled[0]))
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *filled,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=passed_on | values.environment,
            start_new_session=True,
        )
    except OSError as error:
        raise NotRun(LaunchReason.PROGRAM_NOT_RUN(program=filled[0], error=error.strerror)) from error
    said = await _outcome(process, filled[0], limit_s)
    if fixes_job_id(command):
        return values.job_id
    found = _JOB_ID.search(said)
    if found is None:
        raise Malformed(LaunchReason.NO_JOB_ID(said=_tail(said) or LaunchReason.PRINTED_NOTHING()))
    return found.group(1).decode()


async def _outcome(process: asyncio.subprocess.Process, program: str, limit_s: float) -> bytes:
    try:
        said, _ = await asyncio.wait_for(process.communicate(), limit_s)
    except (TimeoutError, asyncio.CancelledError) as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise
        raise TimedOut(LaunchReason.COMMAND_KILLED(program=program, limit_s=limit_s)) from error
    if process.returncode != 0:
        text = _tail(said)
        shown = text or LaunchReason.PRINTED_NOTHING()
        reason = LaunchReason.COMMAND_FAILED(program=program, code=process.returncode, said=shown)
        raise Refused(400, reason, engine_text=text)
    return said


def _runnable(program: str) -> bool:
    return Path(program).is_file() and os.access(program, os.X_OK)


def _check_argument(argument: str) -> None:
    if len(argument) > LONGEST:
        raise BadCommand(f"{argument[:60]}…", LaunchReason.ARGUMENT_TOO_LONG(most=LONGEST))
    if found := _SHELL.search(argument):
        raise BadCommand(argument, LaunchReason.FOR_A_SHELL(found=repr(found.group())))
    try:
        unknown = placeholders([argument]) - set(PLACEHOLDERS)
    except ValueError as error:
        raise BadCommand(argument, LaunchReason.BRACES_DO_NOT_MATCH(error=str(error))) from error
    if unknown:
        name, *known = (f"{{{each}}}" for each in (min(unknown), *PLACEHOLDERS))
        raise BadCommand(argument, LaunchReason.UNKNOWN_PLACE(name=name, known=known))


def _tail(said: bytes) -> str:
    return said.decode(errors="replace").strip()[-_SAID_LIMIT:]
