"""The values that a launch command receives: in the placeholders of its arguments, and in its environment.

Names of jobs and paths of savepoints come from the engine, so whoever may submit a job chooses them. An argument of a
program is safe whatever it holds. Text that a shell or another interpreter reads is not: there a value may hold
nothing that could end a word, and the command reads it from its environment instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from string import Formatter
from urllib.parse import urlsplit

from monitoring.engine.errors import Refused
from monitoring.reasons.launch import LaunchReason
from monitoring.reasons.reason import Reason

PLACEHOLDERS = ("savepoint", "job_id", "job_name", "rest_url", "rest_address", "parallelism")
# Each with the options whose argument it reads as code; None: it always reads an argument so, ssh for the shell at its
# other end.
_SHELL_CODE, _SCRIPT_CODE = re.compile(r"-[a-zA-Z]*c"), re.compile(r"-[a-zA-Z]*[eEnpr]|--(eval|print|run)")
_INTERPRETERS: dict[str, re.Pattern[str] | None] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "rbash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh"), _SHELL_CODE),
    **dict.fromkeys(("busybox", "python", "pypy", "expect"), _SHELL_CODE),
    **dict.fromkeys(("perl", "ruby", "node", "lua", "php"), _SCRIPT_CODE),
    **dict.fromkeys(("awk", "gawk", "mawk", "su", "runuser", "ssh", "xargs", "parallel"), None),
}
_VERSION = re.compile(r"[\d.-]+$")
# Holds no quote, no white space and nothing else by which a word could end or another command begin.
_PLAIN = re.compile(r"[\w./:=@%+,-]*")


class NotRun(Refused):
    """The command was not run: this says nothing about the state that it was to restore."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(400, str(reason))
        self.reason = reason


@dataclass(frozen=True)
class LaunchValues:
    """`rest_url`: where the cluster's REST API answers now. `parallelism` None: the launch record names none."""

    savepoint: str
    job_id: str
    job_name: str
    rest_url: str
    parallelism: int | None = None

    @property
    def texts(self) -> dict[str, str]:
        """By placeholder."""
        texts = {name: "" if value is None else str(value) for name, value in asdict(self).items()}
        return texts | {"rest_address": _address(self.rest_url)}

    def filled(self, command: Sequence[str]) -> list[str]:
        """The command's arguments with these values. Raises NotRun for a value that would be read as something else."""
        interpreter = _interpreter(command)
        for argument in command:
            for placeholder in placeholders([argument]):
                self._check(placeholder, argument, interpreter)
        return [each.format(**self.texts) for each in command]

    @property
    def environment(self) -> dict[str, str]:
        return {environment_name(name): value for name, value in self.texts.items()}

    def _check(self, placeholder: str, argument: str, interpreter: str) -> None:
        value, place = self.texts[placeholder], f"{{{placeholder}}}"
        said = {"place": place, "value": repr(value), "name": environment_name(placeholder)}
        if interpreter and not _PLAIN.fullmatch(value):
            raise NotRun(LaunchReason.READ_AS_CODE(program=interpreter, **said))
        if argument == place and value.startswith("-"):
            raise NotRun(LaunchReason.READ_AS_OPTION(**said))


def environment_name(placeholder: str) -> str:
    return f"WAYMARK_{placeholder.upper()}"


def placeholders(arguments: Sequence[str]) -> set[str]:
    """The names in braces, also those that are no placeholders, as they are written. Raises ValueError for braces that
    do not match."""
    found = [part for each in arguments for part in Formatter().parse(each)]
    return {
        f"{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
        for _, name, form, conversion in found
        if name is not None
    }


def _interpreter(command: Sequence[str]) -> str:
    """The name of an interpreter that reads an argument as code, also behind env, sudo or `kubectl exec … --`; "" when
    there is none."""
    for place, argument in enumerate(command):
        name = _VERSION.sub("", PurePath(argument).name)
        if name in _INTERPRETERS:
            code = _INTERPRETERS[name]
            if code is None or any(code.match(each) for each in command[place + 1 :]):
                return name
    return ""


def _address(url: str) -> str:
    """host:port, as `flink run -m` takes it."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}" if host else ""
