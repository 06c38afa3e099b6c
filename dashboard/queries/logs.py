"""Read the log of a job's driver from the cluster: whole lines, with masked secrets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from checkpointing.masking import mask_text
from monitoring.engine.answers import DriverLog, LogMatches, LogPart
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine_calls import Call, call_all
from monitoring.masking import hidden
from monitoring.models import Run

PART_BYTES = 64 * 1024
_BYTES_ABOVE = 8 * 1024
_DOWNLOADED_AT_ONCE = 1 << 20
_LIMIT_S = 20.0


@dataclass(frozen=True)
class Lines:
    """The text from byte `start` to byte `end` of a log of `size` bytes."""

    start: int
    end: int
    size: int
    text: str

    @property
    def is_at_end(self) -> bool:
        return self.end >= self.size

    @property
    def first(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def rest(self) -> str:
        return "".join(self.text.partition("\n")[1:])


@dataclass(frozen=True)
class LogRequest:
    """The requested log and its part: lines at a time or at a position, else the last lines."""

    name: str = ""
    at: datetime | None = None
    start: int | None = None
    search: str = ""


@dataclass(frozen=True)
class LogPage:
    """The page of a log. `log` is None if the run has no logs.

    `above` has a few lines before `lines`, if a position or a time was requested.
    """

    logs: tuple[DriverLog, ...] = ()
    log: DriverLog | None = None
    above: Lines | None = None
    lines: Lines | None = None
    matches: LogMatches | None = None

    @property
    def earlier(self) -> int:
        """Return the position from which earlier lines are read. The log begins at 0."""
        shown = self.above or self.lines
        return max(0, shown.start - PART_BYTES) if shown else 0

    @property
    def has_earlier(self) -> bool:
        shown = self.above or self.lines
        return shown is not None and shown.start > 0


def read_page(run: Run, requested: LogRequest) -> LogPage | EngineError:
    async def act(client: FlinkClient) -> LogPage:
        return await _page(client, run.engine_job_id, requested)

    (answer,) = call_all([Call(run.job.cluster, act, _LIMIT_S)])
    return answer


async def _page(client: FlinkClient, job_id: str, requested: LogRequest) -> LogPage:
    logs = await client.driver_logs(job_id)
    log = _chosen(logs, requested)
    if log is None:
        return LogPage(logs)
    start = requested.start
    if start is None and requested.at is not None:
        start = await client.log_position(job_id, log.name, requested.at)
    above, lines = await _lines_at(client, job_id, log.name, start)
    matches = await client.search_log(job_id, log.name, requested.search) if requested.search else None
    return LogPage(logs, log, above, lines, matches and _masked(matches, requested.search))


async def _lines_at(client: FlinkClient, job_id: str, name: str, start: int | None) -> tuple[Lines | None, Lines]:
    """Return the lines from `start` on and a few above them, or the last lines if the log ends before `start`."""
    if start is not None:
        context = min(start, _BYTES_ABOVE)
        part = await client.driver_log(job_id, name, start - context, context + PART_BYTES)
        if len(part.content) > context:
            above = LogPart(part.start, part.content[:context], part.size)
            below = LogPart(start, part.content[context:], part.size)
            return lines_of(above, begins_in_line=True), lines_of(below)
    part = await client.driver_log(job_id, name, -1, PART_BYTES)
    return None, lines_of(part, begins_in_line=True)


def _chosen(logs: tuple[DriverLog, ...], requested: LogRequest) -> DriverLog | None:
    """Return the log with the requested name, else that of the attempt at the requested time, else the newest."""
    named = next((log for log in logs if log.name == requested.name), None)
    if named is not None or requested.at is None:
        return named or next(iter(logs), None)
    earlier = [log for log in logs if log.started_at <= requested.at]
    return next(iter(earlier), logs[-1] if logs else None)


def read_new_lines(run: Run, name: str, start: int) -> Lines | EngineError:
    """Read the complete lines from `start` on. An incomplete last line is left for the next call."""
    part = _read_part(run, name, start, PART_BYTES)
    return part if isinstance(part, EngineError) else lines_of(part, takes_last=False)


def _read_part(run: Run, name: str, start: int, length: int) -> LogPart | EngineError:

    async def act(client: FlinkClient) -> LogPart:
        return await client.driver_log(run.engine_job_id, name, start, length)

    (answer,) = call_all([Call(run.job.cluster, act, _LIMIT_S)])
    return answer


def read_all(run: Run, name: str) -> Iterator[str]:
    """Yield the log up to its size at the first call. If the cluster stops answering, the last line says so."""
    start, size = 0, 1
    while start < size:
        part = _read_part(run, name, start, _DOWNLOADED_AT_ONCE)
        if isinstance(part, EngineError):
            yield f"\n[The rest could not be read: {part}]\n"
            return
        lines = lines_of(part)
        size = part.size if start == 0 else min(size, part.size)
        start = lines.end
        yield lines.text
        if not part.content:
            return


def lines_of(part: LogPart, *, begins_in_line: bool = False, takes_last: bool = True) -> Lines:
    """Return the whole lines of a part.

    Args:
        begins_in_line: the part may begin within a line, whose rest is left out.
        takes_last: the last line of the log is included, even if it is incomplete.
    """
    content, start = part.content, part.start
    if begins_in_line and start > 0:
        first = content.find(b"\n") + 1
        content, start = content[first:], start + first
    whole = content.rfind(b"\n") + 1
    is_end = start + len(content) >= part.size
    if (whole or is_end) and not (is_end and takes_last):
        content = content[:whole]
    text = str(mask_text(content.decode(errors="replace"), hidden))
    return Lines(start, start + len(content), part.size, text)


def _masked(matches: LogMatches, search: str) -> LogMatches:
    """Mask the secrets in the lines, and drop a line if only its secret matched the search."""
    masked = ((offset, str(mask_text(line, hidden))) for offset, line in matches.lines)
    shown = tuple((offset, line) for offset, line in masked if search.lower() in line.lower())
    return LogMatches(shown, matches.truncated)
