"""Starting a job by a command, such as `flink run-application …`: a list of arguments, no shell.

`{savepoint}`, `{job_id}` and `{job_name}` in an argument are filled in. A command that passes `{job_id}` on (Flink:
`-D$internal.pipeline.job-id={job_id}`) may be sent again when its fate is not known; any other is run once and never
again by itself, and has to print the id as Flink's command line does: "JobID <32 hexadecimal digits>".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from string import Formatter

from monitoring.engine.errors import Malformed, Refused, Unreachable

PLACEHOLDERS = ("savepoint", "job_id", "job_name")
LIMIT_S = 40.0
LONGEST = 4096
_SHELL = re.compile(r"[;&|<>`\n\r\0]|\$[({]")
_JOB_ID = re.compile(rb"JobID:? ([0-9a-f]{32})\b")
_SAID_LIMIT = 2000
# What a command sees of the worker's environment: no secrets of Waymark's.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "FLINK_HOME", "FLINK_CONF_DIR", "KUBECONFIG")


class BadCommand(ValueError):
    def __init__(self, value: object, allowed: str) -> None:
        super().__init__(f"{value!r}: {allowed}")
        self.value = value
        self.allowed = allowed


def check(command: object) -> list[str]:
    """The command, when it could be run. Raises BadCommand with the argument that is wrong."""
    if not isinstance(command, list) or not command or not all(isinstance(each, str) for each in command):
        raise BadCommand(command, "a list of arguments is needed, the program first")
    for argument in command:
        _check_argument(argument)
    if not command[0].startswith("/"):
        raise BadCommand(command[0], "the program's absolute path is needed")
    if "savepoint" not in _placeholders(command):
        raise BadCommand(" ".join(command)[:200], "{savepoint} is needed in an argument: nothing is started empty")
    return command


def fixes_job_id(command: object) -> bool:
    return isinstance(command, list) and "job_id" in _placeholders(command)


async def run(command: object, job_id: str, job_name: str, savepoint: str, limit_s: float = LIMIT_S) -> str:
    """Run it to its end, within `limit_s`; returns the engine's job id.

    Raises Refused when it ended badly, Unreachable when it did not end in time (it may have started the job), Malformed
    when it ended well and nobody knows the job's id.
    """
    checked = check(command)
    if not savepoint:
        raise Refused(400, "a command starts a job from a savepoint only, and there is none")
    filled = [each.format(savepoint=savepoint, job_id=job_id, job_name=job_name) for each in checked]
    if not _runnable(filled[0]):
        raise Refused(400, f"{filled[0]} is no program that this worker may run")
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *filled,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise Refused(400, f"{filled[0]} could not be run: {error.strerror}") from error
    said = await _outcome(process, filled[0], limit_s)
    if fixes_job_id(command):
        return job_id
    found = _JOB_ID.search(said)
    if found is None:
        raise Malformed(f'The command ended well and printed no "JobID …": {_tail(said)}')
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
        raise Unreachable(f"{program} did not end within {limit_s:g} s and was killed.") from error
    if process.returncode != 0:
        raise Refused(400, f"{program} ended with {process.returncode}: {_tail(said)}")
    return said


def _runnable(program: str) -> bool:
    return Path(program).is_file() and os.access(program, os.X_OK)


def _check_argument(argument: str) -> None:
    if len(argument) > LONGEST:
        raise BadCommand(f"{argument[:60]}…", f"an argument has at most {LONGEST} characters")
    if found := _SHELL.search(argument):
        allowed = f"{found.group()!r} means something to a shell, and there is none: give each argument by itself"
        raise BadCommand(argument, allowed)
    try:
        unknown = _placeholders([argument]) - set(PLACEHOLDERS)
    except ValueError as error:
        raise BadCommand(argument, f"its braces do not match ({error}); write {{{{ and }}}} for braces") from error
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise BadCommand(argument, f"there is no {{{min(unknown)}}}; there are {known}")


def _placeholders(arguments: Sequence[str]) -> set[str]:
    """Also what stands in braces and is none, as it is written there."""
    found = [part for each in arguments for part in Formatter().parse(each)]
    return {
        f"{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
        for _, name, form, conversion in found
        if name is not None
    }


def _tail(said: bytes) -> str:
    text = said.decode(errors="replace").strip()
    return text[-_SAID_LIMIT:] or "it printed nothing"
