"""Advance through the event logs of a directory: each step reads what was appended since the last one.

A log is one file, `<application>[.<codec>][.inprogress]`, or a directory `eventlog_v2_<application>` of numbered files
`events_<number>_<application>[.<codec>]`. A History Server may replace the older ones by `….compact`, which ends with
the events of the number in its name. Events that are read again do not matter: a batch is known by its run and number.

The whole progress is in `Logs`, so another worker can continue it. `checked` only decides which log is read next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

from checkpointing.eventlogs.codecs import CODECS, PLAIN, Damaged, lines
from checkpointing.eventlogs.events import PREFIX, Application, News
from checkpointing.model.refusals import Refusal, Refused
from checkpointing.storage.errors import StorageError
from checkpointing.storage.files import Entry, Files

MOST_LOGS = 2_000
DAYS = 7
CHUNK, LARGEST_CHUNK = 4 << 20, 64 << 20
MOST_OPEN = 1_000
# A log that has not changed for an hour is listed every ten minutes. Its driver may have died.
QUIET_MS, QUIET_EVERY_MS = 60 * 60_000, 10 * 60_000
_DAY_MS = 24 * 60 * 60_000
_MOST_PROBLEMS = 10
_ROLLING, _IN_PROGRESS, _COMPACT, _STATUS = "eventlog_v2_", ".inprogress", ".compact", "appstatus_"
_FILE = re.compile(r"events_(\d{1,18})_.*")
_UNREADABLE = "lzf"
_MISSING = (FileNotFoundError, NotADirectoryError)


class _NoLog(Exception):
    """The file is not an event log of Spark."""


class DirectoryMissing(FileNotFoundError):
    """The directory does not exist, or holds nothing although logs were there: it may not be mounted."""


@dataclass(frozen=True)
class Log:
    """An event log as far as it was read: `skipped` bytes of the unit at `position` in `file` (see `codecs`).

    `seen`: the size of the file at that time. `open`: the runs that have not ended, with the query's id and name.
    `latest_ms`: the time of the newest event. `changed_ms`: when the log changed last. `ended`: nothing will be read.
    """

    file: str = ""
    position: int = 0
    skipped: int = 0
    seen: int = 0
    program: str = ""
    spark: str = ""
    open: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    latest_ms: int = 0
    changed_ms: int = 0
    ended: bool = False
    problem: Mapping[str, Any] | None = None

    def as_row(self) -> dict[str, Any]:
        """Return only the values that differ from the defaults, because most logs have ended."""
        return {key: value for key, value in asdict(self).items() if value}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        runs = {run_id: (query_id, name) for run_id, (query_id, name) in row.get("open", {}).items()}
        return cls(**{**row, "open": runs})


@dataclass(frozen=True)
class Logs:
    """The logs by the names of their directories or files, without `.inprogress`. `problems`: refusals as JSON."""

    logs: Mapping[str, Log] = field(default_factory=dict)
    problems: tuple[Mapping[str, Any], ...] = ()

    def as_row(self) -> dict[str, Any]:
        return {"logs": {name: log.as_row() for name, log in self.logs.items()}, "problems": list(self.problems)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the stored progress. {}: none yet."""
        logs = {name: Log.from_row(log) for name, log in row.get("logs", {}).items()}
        return cls(logs, tuple(row.get("problems", ())))


class _Part(NamedTuple):
    """A file of a log. `number` and `is_compact`: see the module."""

    path: str
    entry: Entry
    number: int = 0
    is_compact: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(_IN_PROGRESS)


class _Listed(NamedTuple):
    """A log in the listing of the directory."""

    path: str
    entry: Entry


def advance(
    logs: Logs, root: str, files: Files, now_ms: int, may_continue: Callable[[], bool], checked: dict[str, int]
) -> tuple[Logs, list[News]]:
    """Read logs while `may_continue`, which is called before each log, returns True. Return the progress, and the news.

    Args:
        checked: when each log was read last. It is changed.

    Raises:
        DirectoryMissing, StorageError: the directory cannot be listed.
    """
    step = _Step(logs, root.rstrip("/"), files, now_ms)
    listed = step.listed()
    for name in list(checked):
        if name not in listed:
            checked.pop(name, None)
    for name in step.due(listed, checked):
        if not may_continue():
            break
        checked[name] = now_ms
        step.read(name, listed[name])
    return step.result(listed)


class _Step:
    def __init__(self, logs: Logs, root: str, files: Files, now_ms: int) -> None:
        self._logs = dict(logs.logs)
        self._root = root
        self._files = files
        self._now_ms = now_ms
        self._since_ms = now_ms - DAYS * _DAY_MS
        self._problems: list[Mapping[str, Any]] = []
        self._news: list[News] = []

    def listed(self) -> dict[str, _Listed]:
        """Return the logs in the directory, the newest first. Old ones are left out if they are not known."""
        try:
            entries = self._files.entries(self._root)
        except _MISSING as error:
            raise DirectoryMissing(self._root) from error
        if not entries and self._logs:
            raise DirectoryMissing(self._root)
        found: dict[str, _Listed] = {}
        for file, entry in sorted(entries.items(), key=lambda each: each[1].modified_ms or 0, reverse=True):
            name = file.removesuffix(_IN_PROGRESS)
            if file.startswith((".", "_")) or entry.is_directory != file.startswith(_ROLLING) or name in found:
                continue
            is_old = not entry.is_directory and (entry.modified_ms or self._now_ms) < self._since_ms
            if is_old and name not in self._logs:
                continue
            if not file.isprintable():
                self._note(Refused(Refusal.BAD_DIRECTORY_NAME, location=ascii(file)))
            elif len(found) == MOST_LOGS:
                self._note(Refused(Refusal.TOO_MANY_LOGS, most=MOST_LOGS, days=DAYS))
                break
            else:
                found[name] = _Listed(f"{self._root}/{file}", entry)
        return found

    def due(self, listed: Mapping[str, _Listed], checked: dict[str, int]) -> list[str]:
        """Return the logs that may have something to read, those first that have waited longest.

        A new log waits from now on: the end of a run should be read before the next run in another log.
        """
        names = [name for name, each in listed.items() if self._is_due(name, each, checked.get(name))]
        return sorted(names, key=lambda name: checked.setdefault(name, self._now_ms - 1))

    def _is_due(self, name: str, listed: _Listed, checked_ms: int | None) -> bool:
        log = self._logs.get(name)
        if log is None or checked_ms is None:
            return log is None or not log.ended
        if not listed.entry.is_directory:
            return not log.ended and (log.seen != listed.entry.size or not listed.path.endswith(_IN_PROGRESS))
        quiet = self._now_ms - log.changed_ms > QUIET_MS
        return not log.ended and self._now_ms >= checked_ms + (QUIET_EVERY_MS if quiet else 0)

    def read(self, name: str, listed: _Listed) -> None:
        """Read one log on, at most about one chunk of it."""
        log = self._logs.get(name, Log())
        try:
            self._logs[name] = self._read(log, *self._parts(listed))
        except _MISSING:  # removed, renamed or compacted since it was listed
            pass
        except _NoLog:
            self._logs[name] = Log(ended=True)
        except Refused as refused:
            self._logs[name] = Log(ended=True, problem=refused.as_json())
        except (StorageError, OSError) as error:
            self._note(Refused(Refusal.NOT_READABLE, location=listed.path, error=str(error)))

    def result(self, listed: Mapping[str, _Listed]) -> tuple[Logs, list[News]]:
        logs = {name: log for name, log in self._logs.items() if name in listed}
        problems = [*self._problems, *(log.problem for log in logs.values() if log.problem)]
        return Logs(logs, tuple(problems[:_MOST_PROBLEMS])), self._news

    def _parts(self, listed: _Listed) -> tuple[list[_Part], bool]:
        """Return the files of the log in the order of their events, and whether the application has closed it."""
        if not listed.entry.is_directory:
            return [_Part(listed.path, listed.entry)], not listed.path.endswith(_IN_PROGRESS)
        parts, is_closed = [], False
        for name, entry in self._files.entries(listed.path).items():
            is_closed = is_closed or (name.startswith(_STATUS) and not name.endswith(_IN_PROGRESS))
            match = _FILE.fullmatch(name)
            if match and not entry.is_directory and not name.endswith(_IN_PROGRESS):
                parts.append(_Part(f"{listed.path}/{name}", entry, int(match[1]), name.endswith(_COMPACT)))
        # If a file was compacted and is not removed yet, the compact one comes after it.
        parts.sort(key=lambda part: (part.number, part.is_compact))
        return parts, is_closed

    def _read(self, log: Log, parts: list[_Part], is_closed: bool) -> Log:
        changed = [part.entry.modified_ms for part in parts if part.entry.modified_ms is not None]
        changed_ms = min(max(changed), self._now_ms) if changed else log.changed_ms
        if not log.file and changed and changed_ms < self._since_ms:
            return Log(ended=True)
        application = Application(log.program, log.spark, dict(log.open), log.latest_ms)
        before = log
        log, is_read = self._read_parts(log, parts, application)
        if is_read and is_closed and (log.file, log.seen) == (before.file, before.seen):
            application.end()
            log = replace(log, ended=True)
        if (log.file, log.seen, log.ended) != (before.file, before.seen, before.ended):
            news = application.news(changed_ms if changed else self._now_ms)
            self._news += [news] if news.queries or news.batches else []
        if log.ended:
            return Log(ended=True, problem=log.problem)
        return replace(
            log,
            program=application.program,
            spark=application.spark,
            open=dict(list(application.open.items())[-MOST_OPEN:]),
            latest_ms=application.latest_ms,
            changed_ms=changed_ms,
        )

    def _read_parts(self, log: Log, parts: list[_Part], application: Application) -> tuple[Log, bool]:
        """Return the log after about one chunk, and whether all of it was read."""
        before, left = log, CHUNK
        for part in _unread(log, parts):
            if part.name != log.file or part.entry.size < log.seen:  # a new file, or this one was truncated
                log = replace(log, file=part.name, position=0, skipped=0, seen=0)
            while left > 0 and log.seen < part.entry.size:
                start = log.position
                log = self._read_chunk(log, part, application)
                left -= log.seen - start
            # A listing of a local directory may have the next file and an old size of this one. So the next file waits
            # until this one has kept its size for a step, or was followed by two.
            if log.seen < part.entry.size or not _is_final(part, parts, before):
                return log, part is parts[-1] and log.seen >= part.entry.size
        return log, True

    def _read_chunk(self, log: Log, part: _Part, application: Application) -> Log:
        codec, size = _codec(part), CHUNK
        while True:
            content = self._files.read_part(part.path, log.position, min(size, part.entry.size - log.position))
            if not content:
                raise FileNotFoundError(part.path)  # replaced since it was listed
            if codec == PLAIN and log.position == 0 and not PREFIX.startswith(content[: len(PREFIX)]):
                raise _NoLog
            end = log.position + len(content)
            position, skipped, damage = None, log.skipped, ""
            try:
                for line in lines(codec, content, log.skipped):
                    if not application.read(line.text):
                        damage = "an event is no JSON"
                    position, skipped = log.position + line.position, line.skipped
            except Damaged as error:
                position, skipped, damage = end, 0, str(error)
            is_whole = end >= part.entry.size
            if position is not None or is_whole or size >= LARGEST_CHUNK:
                break
            size *= 2
        if position is None:
            position, damage = (log.position, "") if is_whole else (end, f"an event has more than {size} bytes")
        problem = Refused(Refusal.LOG_DAMAGED, location=part.path, error=damage[:200]).as_json() if damage else None
        return replace(log, position=position, skipped=skipped, seen=end, problem=problem)

    def _note(self, refused: Refused) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(refused.as_json())


def _unread(log: Log, parts: list[_Part]) -> list[_Part]:
    """Return the file that is being read, and those after it. A compact file only replaces one that is gone."""
    current = next((part for part in parts if part.name == log.file), None)
    match = _FILE.fullmatch(log.file)
    number = int(match[1]) if match else -1
    if current is None:
        current = next((part for part in reversed(parts) if part.is_compact and part.number >= number), None)
    first = [] if current is None else [current]
    number = number if current is None else current.number
    return [*first, *(part for part in parts if not part.is_compact and part.number > number)]


def _is_final(part: _Part, parts: list[_Part], before: Log) -> bool:
    later = sum(each.number > part.number for each in parts)
    return later > 1 or part.is_compact or (before.file, before.seen) == (part.name, part.entry.size)


def _codec(part: _Part) -> str:
    """Return the codec in the file's name. Spark removes dots from the names of applications."""
    codec = part.name.removesuffix(_COMPACT).partition(".")[2]
    if codec == _UNREADABLE:
        raise Refused(Refusal.UNKNOWN_CODEC, location=part.path, codec=codec)
    if codec not in CODECS:
        raise _NoLog
    return codec
