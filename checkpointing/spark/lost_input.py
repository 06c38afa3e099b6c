"""Detects input that must be read again after a restore and is gone.

Spark silently skips a file that a source has listed and that no longer exists (measured): its rows would be missing
from the result. The source's log, which may be ahead of the batch, names the files listed after the restored batch.
Files that no log names cannot be checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from checkpointing.checkpoint_location.layout import source_positions
from checkpointing.spark.restore import RestoreRefused
from checkpointing.state.source import SourceInputLost

_LOG_FILE = re.compile(r"\d+(?:\.compact)?")
_NAMED = 3


# Kafka's source and similar ones use such texts, as do sources that raise Waymark's exception.
_SAID_BY_THE_SOURCE = re.compile(r"\[\w*DATA_LOSS\w*(?:\.\w+)?\]|\bfailOnDataLoss\b")


class InputLost(RestoreRefused):
    """Input of a query is lost, and a retry cannot help. The text names the files."""


def check_input_exists(query: str, location: Path, batch: int) -> None:
    """Raise InputLost if a local file is missing that the query's sources had listed after `batch`."""
    positions = source_positions((location / "offsets" / str(batch)).read_bytes())
    lost: list[str] = []
    for directory in sorted((location / "sources").glob("*")):
        last = _log_offset(positions.get(int(directory.name), "")) if directory.name.isdigit() else None
        if last is not None:
            lost += _missing_files(directory, last)
    if lost:
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        raise InputLost(
            f"Query {query!r} must read the input after batch {batch} again, and its source has lost it: "
            f"{', '.join(lost[:_NAMED])}{more} cannot be found. Restore the files. Or allow non-restored state: then "
            "the query continues without their rows."
        )


def lost_input_message(query: str, name: str, message: str) -> str | None:
    """Return the message for a failure by which a source reports lost input, or None for another failure."""
    if name != SourceInputLost.__name__ and _SAID_BY_THE_SOURCE.search(message) is None:
        return None
    return (
        f"A source of query {query!r} has lost input that it should read: {message} "
        "A restart meets the same. Bring the input back; or have the source go on without it, which Kafka's does with "
        "the option failOnDataLoss=false."
    )


def _log_offset(position: str) -> int | None:
    try:
        offset = json.loads(position).get("logOffset")
    except (ValueError, AttributeError):
        return None  # the source does not read files
    return offset if isinstance(offset, int) else None


def _missing_files(log: Path, last: int) -> list[str]:
    to_read = dict.fromkeys(path for path, number in _entries(log) if number > last)
    return [path for path in to_read if (local := _local(path)) is not None and not local.exists()]


def _entries(log: Path) -> Iterator[tuple[str, int]]:
    """Return path and log entry of every file in a file source's log."""
    for file in log.glob("*"):
        if _LOG_FILE.fullmatch(file.name):
            for line in file.read_text().splitlines()[1:]:
                entry = json.loads(line)
                yield entry["path"], entry["batchId"]


def _local(uri: str) -> Path | None:
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme in ("file", "") else None
