"""Reasons why a location, a checkpoint location of Spark or a key is refused: codes and their English texts.

monitoring/reasons/refusals.py has a reason for each of these codes. Its text is translated in the catalogues.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


def _(text: str) -> str:
    """Mark a text for the catalogues."""
    return text


class Refusal(Enum):
    """A refusal: its code, and its text with a placeholder for each value."""

    EMPTY = "imports.empty", _("{location} does not exist, or is empty.")
    SNAPSHOT = (
        "imports.snapshot",
        _("{location} is a checkpoint or savepoint. Start the job from it as from a savepoint."),
    )
    OF_WAYMARK = (
        "imports.of-waymark",
        _("{location} belongs to a job of Waymark. Take a savepoint of that job, and start from the savepoint."),
    )
    NOT_OF_SPARK = (
        "imports.not-of-spark",
        _("{location} is not a checkpoint location of Spark: it has no file 'metadata'."),
    )
    NO_BATCH = (
        "imports.no-batch",
        _("{location} has no committed batch. Start the job without it: there is no state yet."),
    )
    COMMITS_MISSING = (
        "imports.commits-missing",
        _(
            "{location} has offsets of batch {started}, but the newest commit is of batch {batch}: commits are "
            "missing, and Spark could not continue from there either."
        ),
    )
    UNKNOWN_FORMAT = (
        "imports.unknown-format",
        _(
            "{file} has the format {version}, which is not supported; the supported formats are {known}. The "
            "file is damaged or was written by another version of Spark."
        ),
    )
    METADATA_DAMAGED = (
        "imports.metadata-damaged",
        _("{location}/metadata is damaged: it does not name the query's id."),
    )
    BATCH_INCOMPLETE = (
        "imports.batch-incomplete",
        _("{location}: batch {batch}, the newest one, is not complete: {what}"),
    )
    IN_USE = (
        "imports.in-use",
        _("{location} changed while it was read: a query still runs there. Stop it, and import the location again."),
    )
    OF_ANOTHER_QUERY = (
        "imports.of-another-query",
        _("{location} belongs to another query now: its checkpoint was deleted, or replaced by another one."),
    )
    TOO_FAST = (
        "imports.too-fast",
        _(
            "{location}: Spark replaced or removed files while they were copied, {count} times in a row. "
            "Increase spark.sql.streaming.minBatchesToRetain of the query, or try again later."
        ),
    )
    CONTINUED = (
        "imports.continued",
        _(
            "{location} cannot be used: job {job} ({id}) continues its query and is {status}. Two jobs would damage "
            "each other's output. End that job first: manage.py job cancel {id}"
        ),
    )
    NAME_NEEDED = "imports.name-needed", _("write NAME=LOCATION for each query")
    TWO_LOCATIONS = "imports.two-locations", _("query {query} has two locations; give each query only one")
    LOCATION_NEEDED = (
        "imports.location-needed",
        _("{text} is not allowed; LOCATION or NAME=LOCATION is expected"),
    )

    NOT_ABSOLUTE = (
        "locations.not-absolute",
        _("{location} is neither an absolute path nor an address (scheme://…)"),
    )
    OTHER_MACHINE = "locations.other-machine", _("{location}: a file: address must not name another machine")
    SLASHES_MISSING = "locations.slashes-missing", _("{location}: write scheme://…, with two slashes")
    HAS_PASSWORD = (
        "locations.has-password",
        _("{location}: an address must not contain a password; put the password into fsspec's configuration"),
    )
    BAD_CHARACTER = (
        "locations.bad-character",
        _("{location}: a storage address must not contain '?', '#' or control characters"),
    )
    BAD_NAME = (
        "locations.bad-name",
        _("{location}: a path in remote storage must not contain '.', '..' or empty names"),
    )

    NOT_READABLE = "watched.not-readable", _("{location} cannot be read: {error}")
    BAD_DIRECTORY_NAME = (
        "watched.bad-name",
        _("{location} is not monitored: its name has characters that cannot be displayed."),
    )
    COPY = (
        "watched.copy",
        _("{location} is not monitored: another location has the same query id, {query}. It is probably a copy."),
    )
    TOO_MANY_LOCATIONS = (
        "watched.too-many",
        _("More than {most} checkpoint locations were found. The others are not monitored: choose a lower directory."),
    )

    UNKNOWN_CODEC = (
        "watched.unknown-codec",
        _("{location} is compressed with {codec}. Waymark can read event logs with zstd, lz4 and snappy."),
    )
    LOG_DAMAGED = "watched.log-damaged", _("{location} is damaged, and a part of it was skipped: {error}")
    TOO_MANY_LOGS = (
        "watched.too-many-logs",
        _("The directory has more than {most} event logs of the last {days} days. The oldest are not read."),
    )
    NOT_SAVED = "watched.not-saved", _("{location} was not saved to {target}: {error}")
    COPY_STOPPED = (
        "watched.copy-stopped",
        _("{location} was not saved: its copy was interrupted {count} times, because workers were stopped."),
    )
    TARGET_NOT_ALLOWED = (
        "watched.target-not-allowed",
        _("{target} is not below a directory of WAYMARK_STATE_ROOTS, so Waymark does not write there."),
    )
    TARGET_INSIDE = (
        "watched.target-inside",
        _("{target} is in the watched directory {root}. Waymark never writes there: choose another directory."),
    )
    TARGET_MISSING = "watched.target-missing", _("{target} is not a directory. Is its storage mounted?")

    UNKNOWN_KEY_NEAR = "keys.unknown-near", _("{key}: a PySpark job has no such key; the most similar key is {near}")
    UNKNOWN_KEY = "keys.unknown", _("{key}: a PySpark job has no such key; the keys are {keys}")


class Refused(Exception):
    """A person's input cannot be used. `str` returns the English text."""

    def __init__(self, refusal: Refusal, **values: str | int) -> None:
        self.code, text = refusal.value
        self.values = values
        super().__init__(text.format(**values))

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "args": self.values}
