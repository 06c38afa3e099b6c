"""The values for a launch command: in the placeholders of its arguments, and in its environment.

Names of jobs and paths of savepoints come from the engine, so anyone who may submit a job can choose them. A separate
argument of a program is safe with any content. Code for a shell or another interpreter is not: there a value may have
no character that ends a word. Such a command should read the value from its environment instead.
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
# Interpreters, with the options whose argument is code. None: an argument is always code (for ssh: remotely).
_SHELL_CODE, _SCRIPT_CODE = re.compile(r"-[a-zA-Z]*c"), re.compile(r"-[a-zA-Z]*[eEnpr]|--(eval|print|run)")
_INTERPRETERS: dict[str, re.Pattern[str] | None] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "rbash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh"), _SHELL_CODE),
    **dict.fromkeys(("busybox", "python", "pypy", "expect"), _SHELL_CODE),
    **dict.fromkeys(("perl", "ruby", "node", "lua", "php"), _SCRIPT_CODE),
    **dict.fromkeys(("awk", "gawk", "mawk", "su", "runuser", "ssh", "xargs", "parallel"), None),
}
_VERSION = re.compile(r"[\d.-]+$")
# Excludes quotes, white space and all characters that could end a word or start another command.
_PLAIN = re.compile(r"[\w./:=@%+,-]*")


class NotRun(Refused):
    """The command was not run. This proves nothing about the state that it should restore."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(400, reason)


@dataclass(frozen=True)
class LaunchValues:
    """The values of a launch. `rest_url` is the current URL of the cluster's REST API.

    `parallelism` is None if the launch record has none.
    """

    savepoint: str
    job_id: str
    job_name: str
    rest_url: str
    parallelism: int | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The texts of the values, by placeholder."""
        texts = {name: "" if value is None else str(value) for name, value in asdict(self).items()}
        return texts | {"rest_address": _address(self.rest_url)}

    def filled(self, command: Sequence[str]) -> list[str]:
        """Return the command's arguments with these values.

        Raises:
            NotRun: the program would read a value as code or as an option.
        """
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
    """Return all names in braces, also unknown ones, with their conversion and format.

    Raises:
        ValueError: braces do not match.
    """
    found = [part for each in arguments for part in Formatter().parse(each)]
    return {
        f"{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
        for _, name, form, conversion in found
        if name is not None
    }


def _interpreter(command: Sequence[str]) -> str:
    """Return the name of the interpreter that reads an argument as code, "" if there is none.

    It may follow env, sudo or `kubectl exec … --`.
    """
    for place, argument in enumerate(command):
        name = _VERSION.sub("", PurePath(argument).name)
        if name in _INTERPRETERS:
            code = _INTERPRETERS[name]
            if code is None or any(code.match(each) for each in command[place + 1 :]):
                return name
    return ""


def _address(url: str) -> str:
    """Return host:port of the URL, for `flink run -m`."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}" if host else ""
