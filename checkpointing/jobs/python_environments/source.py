"""The source of a job's Python environment: the text of a requirements file, or a packed environment.

waymark.python.requirements   the text itself, or one line with the location of the file
waymark.python.archive        the location of the archive

A location is an absolute path on the job manager's machine, or an address such as `s3://…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkpointing.jobs.launching.python import KEY
from checkpointing.jobs.python_environments.preparation import PreparedPython, SourceKind
from checkpointing.masking import mask_text
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.storage.errors import StorageError
from checkpointing.storage.locations import canonical, name, parent
from checkpointing.storage.opening import files_for

REQUIREMENTS, ARCHIVE = f"{KEY}.requirements", f"{KEY}.archive"
MOST_TEXT = 512 << 10
_LOCATION = re.compile(r"/\S*|[A-Za-z][A-Za-z0-9+.-]*:/\S*")
_ELSEWHERE = re.compile(r"(-r|--requirement|-c|--constraint|-e|--editable)\b|\.{1,2}/")
_HASH = re.compile(r"(?<!\S)--hash[= ]")
_SHOWN = 80


@dataclass(frozen=True)
class EnvironmentSource:
    """Where an environment comes from. `value` is the setting's: the text of the requirements, or a location."""

    kind: SourceKind
    value: str

    @classmethod
    def parse(cls, configuration: Mapping[str, str]) -> EnvironmentSource | None:
        """Return the source, or None for a job that runs in an existing Python. Raise InvalidConfiguration."""
        given = [key for key in (KEY, REQUIREMENTS, ARCHIVE) if configuration.get(key, "").strip()]
        if len(given) > 1:
            raise InvalidConfiguration(given[1], _shown(configuration[given[1]]), f"only one of {', '.join(given)}")
        if not given or given == [KEY]:
            return None
        value = configuration[given[0]].strip()
        source = cls(SourceKind.REQUIREMENTS if given == [REQUIREMENTS] else SourceKind.ARCHIVE, value)
        source.check()
        return source

    @property
    def key(self) -> str:
        return REQUIREMENTS if self.kind is SourceKind.REQUIREMENTS else ARCHIVE

    @property
    def label(self) -> str:
        """Return the beginning of a failure's text: the setting, and the location that it names."""
        return self.key if self.location is None else f"{self.key}: {self.location}"

    @property
    def location(self) -> str | None:
        """Return the location, or None if the setting is the text of the requirements."""
        if self.kind is SourceKind.REQUIREMENTS and not _LOCATION.fullmatch(self.value):
            return None
        return canonical(self.value)

    def check(self) -> None:
        """Raise InvalidConfiguration for a value that can never become an environment. Read no file."""
        try:
            if self.location is None:
                self.check_text(self.value)
        except StorageError as error:
            allowed = f"an absolute path or an address, such as /srv/envs/orders.tar.gz ({error})"
            raise self.refusal(allowed) from error

    def check_text(self, text: str) -> None:
        """Raise InvalidConfiguration for requirements that need other files, which the job manager does not have."""
        if len(text.encode(errors="replace")) > MOST_TEXT:
            raise self.refusal(f"at most {MOST_TEXT} bytes")
        for number, line in _lines(text):
            if _ELSEWHERE.match(line):
                allowed = "one file without references to others, as pip-compile writes it"
                raise InvalidConfiguration(self.key, f"line {number}: {_shown(line)}", allowed)
            if line.endswith(".txt") and " " not in line:
                allowed = "the text of the file, or an absolute path; `submit --requirements FILE` sends the file"
                raise InvalidConfiguration(self.key, _shown(line), allowed)

    def read_text(self) -> str:
        """Return the requirements. Blocking; raise InvalidConfiguration and OSError."""
        location = self.location
        if location is None:
            return self.value
        try:
            text = files_for(location).read(location).decode()
        except UnicodeDecodeError as error:
            raise self.refusal("a UTF-8 text") from error
        self.check_text(text)
        return text.strip()

    def refusal(self, allowed: str) -> InvalidConfiguration:
        return InvalidConfiguration(self.key, _shown(self.value), allowed)


def check_source(configuration: Mapping[str, str]) -> None:
    """Raise InvalidConfiguration if the environment's source is missing or cannot be used. Blocks."""
    source = EnvironmentSource.parse(configuration)
    if source is None or source.location is None:
        return
    try:
        if source.kind is SourceKind.REQUIREMENTS:
            source.read_text()
        elif size_of(source.location) is None:
            raise FileNotFoundError
    except FileNotFoundError as error:
        raise source.refusal("a file that the job manager can read") from error
    except OSError as error:
        raise source.refusal(f"a file that the job manager can read ({error})") from error


def in_prepared(prepared: PreparedPython | None, configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the driver's configuration. It names the prepared Python instead of its source."""
    own = {} if prepared is None else {KEY: prepared.python}
    return {key: value for key, value in configuration.items() if key not in (REQUIREMENTS, ARCHIVE)} | own


def size_of(location: str) -> int | None:
    """Return the size of a file, or None if it is missing. Blocks. Raise OSError."""
    return files_for(location).sizes(parent(location)).get(name(location))


def has_hashes(text: str) -> bool:
    return any(_HASH.search(line) for _, line in _lines(text))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _shown(value: str) -> str:
    """Return the beginning of the value, without the password of an index."""
    value = str(mask_text(value))
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
