"""What lies in an archive that this database knows nothing of: listed, and each file compared with its manifest.

Nothing of it is believed: names, figures and rows were written by another installation, or by this one before its
database was lost. Whatever is wrong becomes Unfit, which names the file and says what is wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet as pq

from checkpointing.storage.errors import StorageError
from checkpointing.storage.opening import files_for
from monitoring.history.archive.kinds import KINDS, Kind
from monitoring.history.archive.location import MANIFEST
from monitoring.models import ArchivedKind

VERSION = 1
_MOST_RUNS = 10_000_000
_DIRECTORY = re.compile(r"^cluster=(?P<cluster>[0-9]{1,18})$")
_DAY = re.compile(r"^day=(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})$")
_FILE = re.compile(r"^[0-9]{4}-[0-9a-f]{16}\.parquet$")


class Unfit(Exception):
    """A file or a directory that cannot be taken up; the text names it and says why."""


@dataclass(frozen=True)
class OfferedRun:
    """Whose rows they are, by names: keys are the other database's."""

    cluster: str
    job: str
    number: int
    engine_job_id: str


@dataclass(frozen=True)
class OfferedFile:
    kind: ArchivedKind
    path: str  # its whole location
    rows: int
    size: int
    sha256: str
    since: datetime
    until: datetime


@dataclass(frozen=True)
class OfferedDay:
    """The files of a UTC day of one cluster (its number there), of all kinds."""

    day: date
    cluster: int
    files: tuple[OfferedFile, ...]
    runs: Mapping[int, OfferedRun]

    def __str__(self) -> str:
        return f"{self.day:%-d %B %Y} of cluster={self.cluster}"


def days_in(location: str) -> list[tuple[date, int]]:
    """With the other installation's number of the cluster, oldest first. Unfit: there is no archive."""
    storage = files_for(location)
    found = set()
    for kind in ArchivedKind:
        for name in storage.names(f"{location}/{kind.value}"):
            if (match := _DAY.match(name)) and (day := _date(match["day"])):
                clusters = (_DIRECTORY.match(each) for each in storage.names(f"{location}/{kind.value}/{name}"))
                found |= {(day, int(each["cluster"])) for each in clusters if each}
    if not found:
        raise Unfit(f"{location}: there is no archive; it would have checkpoints/day=2026-08-01/cluster=1 and such")
    return sorted(found)


def paths_of(location: str, day: date, cluster: int) -> list[str]:
    """Of its Parquet files, below `location`."""
    directories = [f"{kind.value}/day={day.isoformat()}/cluster={cluster}" for kind in ArchivedKind]
    storage = files_for(location)
    return [
        f"{directory}/{name}"
        for directory in directories
        for name in storage.names(f"{location}/{directory}")
        if name.endswith(".parquet")
    ]


def day_in(location: str, day: date, cluster: int, known: Collection[str] = ()) -> OfferedDay:
    """As the manifests tell it, without the files of `known` (paths below `location`), which are ours. Unfit."""
    files: list[OfferedFile] = []
    runs: dict[int, OfferedRun] = {}
    for kind in ArchivedKind:
        told, of = _of_kind(kind, f"{location}/{kind.value}/day={day.isoformat()}/cluster={cluster}", known)
        files += told
        runs |= of
    if not files:
        raise Unfit(f"{location}: the manifests of {day:%-d %B %Y} of cluster={cluster} name no file")
    return OfferedDay(day, cluster, tuple(sorted(files, key=lambda each: (each.kind, each.since))), runs)


def _of_kind(
    kind: ArchivedKind, directory: str, known: Collection[str]
) -> tuple[list[OfferedFile], dict[int, OfferedRun]]:
    names = set(files_for(directory).names(directory))
    own = {path.rpartition("/")[2] for path in known if path.startswith(f"{kind.value}/")}
    there = {name for name in names if name.endswith(".parquet")} - own
    if not there and MANIFEST not in names:
        return [], {}
    named, runs = _manifest(kind, directory)
    told = [each for each in named if each.path.rpartition("/")[2] not in own]
    if missing := {each.path.rpartition("/")[2] for each in told} - there:
        raise Unfit(f"{directory}/{min(missing)}: it is in the manifest, and missing")
    if strange := there - {each.path.rpartition("/")[2] for each in told}:
        raise Unfit(f"{directory}/{min(strange)}: it is not in the manifest beside it, which says whose rows it has")
    return told, runs


def _manifest(kind: ArchivedKind, directory: str) -> tuple[list[OfferedFile], dict[int, OfferedRun]]:
    path = f"{directory}/{MANIFEST}"
    try:
        told = json.loads(files_for(directory).read(path))
        if told["version"] != VERSION:
            raise Unfit(f"{path}: it is of version {told['version']!r}, and {VERSION} is known")
        files = [_file(kind, directory, each) for each in told["files"]]
        runs = {int(key): _run(each) for key, each in told["runs"].items()}
    except FileNotFoundError:
        raise Unfit(f"{path}: it is missing, and says what there is") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unfit(f"{path}: it is no manifest of an archive ({type(error).__name__}: {error})") from error
    return files, runs


def _file(kind: ArchivedKind, directory: str, told: Mapping[str, Any]) -> OfferedFile:
    name, sha256 = str(told["name"]), str(told["sha256"])
    if not _FILE.match(name):
        raise ValueError(f"name {name!r}")
    since, until = (datetime.fromisoformat(told[each]) for each in ("since", "until"))
    if since.tzinfo is None or until.tzinfo is None or since >= until:
        raise ValueError(f"since {since} and until {until} of {name}")
    return OfferedFile(kind, f"{directory}/{name}", int(told["rows"]), int(told["size"]), sha256, since, until)


def _run(told: Mapping[str, Any]) -> OfferedRun:
    run = OfferedRun(str(told["cluster"]), str(told["job"]), int(told["run"]), str(told["id"]))
    for what, text, most in (("cluster", run.cluster, 100), ("job", run.job, 500), ("id", run.engine_job_id, 32)):
        if not 0 < len(text) <= most or "\0" in text:
            raise ValueError(f"{what} {text[:40]!r}: from 1 to {most} characters are allowed")
    if not 0 < run.number < _MOST_RUNS:
        raise ValueError(f"run {run.number}")
    return run


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def read(offered: OfferedDay, file: OfferedFile, workshop: Path) -> Iterator[pa.Table]:
    """Its rows, a row group at a time, after it was compared as a whole with what its manifest says. Unfit."""
    kind = KINDS[file.kind]
    path = _brought(file, workshop)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, memory_map=False) as opened:
            _same_columns(file, kind, opened.schema_arrow)
            if opened.metadata.num_rows != file.rows:
                raise Unfit(
                    f"{file.path}: it has {opened.metadata.num_rows:,} rows, and its manifest says {file.rows:,}"
                )
            for number in range(opened.num_row_groups):
                yield _checked(offered, file, opened.read_row_group(number, use_threads=False).cast(kind.schema))
    except (pa.ArrowException, OSError) as error:
        raise Unfit(f"{file.path}: {error}") from error


def _brought(file: OfferedFile, workshop: Path) -> Path:
    here = workshop / "offered.parquet"
    here.unlink(missing_ok=True)
    try:
        sha256 = files_for(file.path).get(file.path, here, file.sha256)
    except StorageError:
        raise  # the place, and not the file
    except OSError as error:
        raise Unfit(f"{file.path}: {error}") from error
    if here.stat().st_size != file.size:
        raise Unfit(f"{file.path}: it has {here.stat().st_size:,} bytes, and its manifest says {file.size:,}")
    if sha256 != file.sha256 or not Path(file.path).name.endswith(f"-{sha256[:16]}.parquet"):
        raise Unfit(f"{file.path}: it has another content than was written (its SHA-256 is {sha256[:16]}…)")
    return here


def _same_columns(file: OfferedFile, kind: Kind, there: pa.Schema) -> None:
    missing = sorted(set(kind.schema.names) - set(there.names))
    strange = sorted(set(there.names) - set(kind.schema.names))
    if missing or strange:
        differs = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(strange)}"] * bool(strange)
        raise Unfit(f"{file.path}: another version of Waymark wrote it: it {' and '.join(differs)}")


def _checked(offered: OfferedDay, file: OfferedFile, rows: pa.Table) -> pa.Table:
    kind = KINDS[file.kind]
    first, last = pc.min_max(rows[kind.table.key]).as_py().values()
    midnight = datetime.combine(offered.day, datetime.min.time(), UTC)
    since, until = max(file.since, midnight), min(file.until, midnight + timedelta(days=1))
    if first is None or first < since or last >= until:
        raise Unfit(f"{file.path}: it has rows of {first} to {last}, and its manifest says {since} to {until}")
    if "run_id" in rows.column_names:
        unknown = set(rows["run_id"].unique().to_pylist()) - offered.runs.keys()
        if unknown:
            raise Unfit(f"{file.path}: it has rows of run {min(unknown)}, of which its manifest knows nothing")
    return rows
