"""The output directory of Spark's own file sink, when a query goes on from a state: its log and its data files.

The log, `_spark_metadata`, names the files that count. The sink skips a batch that its log already has, so the log
goes back with the state. Readers that follow it, as Spark does, see each row once; others see whatever lies in the
directory. For them the files that no longer count are moved out of sight, and back when a state is restored whose log
names them:

    <output>/_spark_metadata/                    the log
    <output>/._spark_metadata.abandoned.<…>/     logs of abandoned futures
    <output>/.waymark/abandoned/<path>           data files that no longer count, by their path below the output

Which files: those that the abandoned log names and the restored one does not. And those that no log names, which a
batch wrote that never ended: only newer ones than the restored state, and only when nobody can still be writing them.
All of it may be interrupted and done again; the log changes last.
"""

from __future__ import annotations

import json
import logging
import os
import re
import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from checkpointing.sinks.output_directory import SinkDirectoryTaken

log = logging.getLogger(__name__)

LOG_NAME = "_spark_metadata"
_ASIDE = Path(".waymark", "abandoned")
# As Spark's tasks name what they write: part-00000-<uuid>-c000.snappy.parquet
_DATA_FILE = re.compile(r"part-\d{5,}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-].*")


def replace_log(output: Path, fresh: Path, *, keep_output: bool) -> None:
    """Make `fresh`, a directory beside the log, the log. OSError, ValueError when a log cannot be read.

    `keep_output` (at-least-once): its last batch takes over what the log before listed, so that no row disappears.
    """
    former, restored = output / LOG_NAME, output / fresh.name
    if keep_output:
        _take_over(_entries(former), restored)
    kept = _named(output, restored)
    _bring_back(output, kept)
    if not keep_output:
        _put_aside(output, _named(output, former) - kept)
    _put_log_aside(former)
    restored.rename(former)


def check_not_foreign(output: Path, job_id: str) -> None:
    """Raise SinkDirectoryTaken if a query of the job must not start without state into `output`.

    The sink skips each batch whose number is in the log. The rows of a query that counts from 0 would be lost in a log
    that another job or query wrote. The job marks a directory when it first writes there.
    """
    if not _mark(output, job_id).exists() and _batches(output / LOG_NAME):
        raise SinkDirectoryTaken(
            f"{output} holds the output of another job or query: its {LOG_NAME} was not written by job {job_id}. Start "
            f"job {job_id} from a state of the job that wrote it, or give the query another directory, or remove the "
            "directory to start over."
        )


def start_anew(output: Path, job_id: str, *, keep_output: bool) -> None:
    """Prepare `output` for a query that starts without state: what an earlier attempt of the job wrote is dropped.

    Raises:
        SinkDirectoryTaken: see `check_not_foreign`.
        OSError, ValueError: the log cannot be read or moved.
    """
    check_not_foreign(output, job_id)
    former, mark = output / LOG_NAME, _mark(output, job_id)
    if not mark.exists():
        output.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return
    if not keep_output:
        _put_aside(output, _named(output, former))
    _put_log_aside(former)


def _mark(output: Path, job_id: str) -> Path:
    return output / f".{LOG_NAME}.of.{job_id}"


def put_unfinished_aside(output: Path, since_ms: int) -> None:
    """Data files of batches that never ended: not named in the log, and not older than `since_ms` (epoch).

    Only for when the driver and every task that wrote them are gone. OSError, ValueError.
    """
    named = _named(output, output / LOG_NAME)
    unnamed = {path for path in _data_files(output) if path not in named}
    _put_aside(output, {path for path in unnamed if (output / path).stat().st_mtime_ns >= since_ms * 1_000_000})


def _put_log_aside(log_directory: Path) -> None:
    if log_directory.exists():
        log_directory.rename(log_directory.with_name(f".{LOG_NAME}.abandoned.{uuid.uuid4().hex}"))


# --- data files, by their path below the output ---


def _put_aside(output: Path, paths: Collection[Path]) -> None:
    moved = [path for path in sorted(paths) if _move(output / path, output / _ASIDE / path)]
    if moved:
        log.info("%d files of abandoned batches moved from %s to %s below it", len(moved), output, _ASIDE)


def _bring_back(output: Path, paths: Collection[Path]) -> None:
    for path in paths:
        if not (output / path).exists():
            _move(output / _ASIDE / path, output / path)


def _move(source: Path, target: Path) -> bool:
    """False when it is not there: it was moved before, or its owner removed it. Hadoop's checksums go with it."""
    if not source.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    sums, target_sums = (path.with_name(f".{path.name}.crc") for path in (source, target))
    if sums.exists():
        sums.rename(target_sums)
    source.rename(target)
    return True


def _data_files(output: Path) -> Iterator[Path]:
    """Those that look like a sink's; what is hidden from readers is no output."""
    for directory, subdirectories, names in os.walk(output):
        subdirectories[:] = [name for name in subdirectories if not name.startswith((".", "_"))]
        for name in names:
            if _DATA_FILE.fullmatch(name):
                yield Path(directory, name).relative_to(output)


# --- the log ---


def _named(output: Path, log_directory: Path) -> frozenset[Path]:
    """The files that the log lists; those outside of the output are nobody's to move."""
    found, root = set(), output.absolute()
    for entry in _entries(log_directory):
        parts = urlsplit(json.loads(entry)["path"])
        path = Path(unquote(parts.path))
        if parts.scheme in ("file", "") and path.is_relative_to(root):
            found.add(path.relative_to(root))
    return frozenset(found)


def _take_over(entries: Sequence[str], log_directory: Path) -> None:
    """Add the entries that the log lacks to its last batch."""
    known, batches = set(_entries(log_directory)), _batches(log_directory)
    lacking = [entry for entry in entries if entry not in known]
    last = max(batches, default=None)
    if lacking and last is not None:
        path = batches[last]
        path.write_text("\n".join([path.read_text(), *lacking]))


def _entries(log_directory: Path) -> list[str]:
    """What a file sink's log lists, one line of JSON a file: its newest compacted batch and all batches after it."""
    batches = _batches(log_directory)
    base = max((batch for batch, path in batches.items() if path.suffix), default=-1)
    lines = [line for batch in sorted(batches) if batch >= base for line in batches[batch].read_text().splitlines()[1:]]
    return list(dict.fromkeys(lines))


def _batches(log_directory: Path) -> dict[int, Path]:
    """The log's files by batch; of a batch that has both, the compacted one."""
    paths = [path for path in log_directory.glob("*") if path.stem.isdigit() and path.suffix in ("", ".compact")]
    return {int(path.stem): path for path in sorted(paths)}
