"""The environment variables that a job's configuration gives to its program.

waymark.env.NAME           the variable NAME
waymark.secret.NAME        the variable NAME; no page, answer, log or specification on disk shows its value
waymark.secret-file.NAME   a file that only this account can read; the variable NAME_FILE holds its path
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from checkpointing.masking import HIDDEN
from checkpointing.model.configuration import InvalidConfiguration

VARIABLE, SECRET, SECRET_FILE = "waymark.env.", "waymark.secret.", "waymark.secret-file."
PREFIXES = (VARIABLE, SECRET, SECRET_FILE)
SEALED = "fernet:"  # the prefix of an encrypted secret (see `secret_keys`)
_SHORTEST = 5  # characters
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The job manager and PySpark set these. With other values the driver would not start.
_TAKEN = re.compile(
    r"WAYMARK_.*|PYTHONPATH|PYTHONHOME|_?PYSPARK_(PYTHON|DRIVER_PYTHON|SUBMIT_ARGS|GATEWAY_.*|DRIVER_.*)"
)


@dataclass(frozen=True)
class JobEnvironment:
    """The environment of a program.

    `variables` and `secrets` by name; `secret_files` by NAME, each with its content.
    """

    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    secret_files: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, configuration: Mapping[str, str]) -> JobEnvironment:
        """Parse the configuration. Raise InvalidConfiguration for a name that is not allowed or is given twice."""
        seen: set[str] = set()
        for key, value in configuration.items():
            if not key.startswith(PREFIXES):
                continue
            variable, shown = _variable(key), value if key.startswith(VARIABLE) else HIDDEN
            if not _NAME.fullmatch(variable):
                raise InvalidConfiguration(key, shown, "a variable's name has letters, digits and _")
            if _TAKEN.fullmatch(variable):
                raise InvalidConfiguration(key, shown, f"Waymark and PySpark set {variable} themselves")
            if variable in seen:
                raise InvalidConfiguration(key, shown, f"another key sets {variable}, too")
            if "\0" in value:
                raise InvalidConfiguration(key, shown, "a text without null characters")
            seen.add(variable)
        return cls(*(_with_prefix(prefix, configuration) for prefix in PREFIXES))

    def hidden(self) -> JobEnvironment:
        """Return the same names without secret values."""
        names, files = dict.fromkeys(self.secrets, HIDDEN), dict.fromkeys(self.secret_files, HIDDEN)
        return replace(self, secrets=names, secret_files=files)

    def secrets_in(self, environ: Mapping[str, str]) -> list[str]:
        """Return the secrets of a driver with `environ`, the longest first.

        Short ones are left out: they could be any word.
        """
        values = [environ.get(name, "") for name in self.secrets]
        for name in self.secret_files:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = Path(environ.get(f"{name}_FILE", "")).read_text()
                values += [text, *text.splitlines()]
        found = {value.strip() for value in values}
        return sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)

    @property
    def is_hidden(self) -> bool:
        """Return whether `hidden` removed the secrets."""
        return HIDDEN in (*self.secrets.values(), *self.secret_files.values())


def without_secrets(configuration: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in configuration.items() if not is_declared_secret(key)}


def is_declared_secret(key: str) -> bool:
    return key.startswith((SECRET, SECRET_FILE))


def has_sealed(configuration: Mapping[str, str]) -> bool:
    return any(is_declared_secret(key) and value.startswith(SEALED) for key, value in configuration.items())


def _variable(key: str) -> str:
    prefix = next(prefix for prefix in PREFIXES if key.startswith(prefix))
    return key.removeprefix(prefix) + ("_FILE" if prefix == SECRET_FILE else "")


def _with_prefix(prefix: str, configuration: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in configuration.items() if key.startswith(prefix)}
