"""Returns the output of Spark's own file sink to the restored state: its log (sink_output.py) and its data files.

The log names the files that count. The sink skips a batch whose number is not above the log's newest one. Readers that
follow the log, as Spark does, see each row once; others see what the directory holds.

A restore whose last batch has the new number M adds two files to the log, `<M-I>.compact` and `<M>.compact` for the
interval I. Both have all files that count as of the restored state.

On the local file system, data files that no longer count are also moved out of sight, and moved back when a state is
restored whose log names them:

    <output>/.waymark/abandoned/<path>           data files, by their path below the output

These are the files that the old log named and the restored one does not. Files of a batch that never ended are in no
log. They are moved, too, if they are newer than the restored state and no process can still be writing them. On other
file systems such files stay where they are. An interrupted restore is repeated with other numbers.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from checkpointing.sinks.output_directory import SinkDirectoryTaken
from checkpointing.spark.sink_output import LOG_NAME, SinkLogEnd, SinkOutput

log = logging.getLogger(__name__)

_ASIDE = Path(".waymark", "abandoned")
# The file names of Spark's tasks: part-00000-<uuid>-c000.snappy.parquet
_DATA_FILE = re.compile(r"part-\d{5,}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-].*")


def put_back(output: SinkOutput, entries: Sequence[str], end: SinkLogEnd, *, keep_output: bool) -> None:
    """Make the log list `entries`. Raise OSError, or ValueError if a log cannot be read.

    `keep_output` (at-least-once): entries that the log listed before stay, so that no row disappears.
    """
    listed = list(dict.fromkeys([*entries, *(output.visible() if keep_output else ())]))
    root = output.local
    if root is None:
        output.end_log(listed, end)
        return
    kept = _named(root, listed)
    _move_back(root, kept)
    abandoned = frozenset() if keep_output else _named(root, output.all_entries()) - kept
    output.end_log(listed, end)
    _move_aside(root, abandoned)


def check_numbers_are_new(output: SinkOutput, first: int) -> None:
    """Raise SinkDirectoryTaken if the log has a number from `first` on, because the sink would then skip batches."""
    newest = output.newest()
    if newest >= first:
        raise SinkDirectoryTaken(
            f"{output} is written by another job: its {LOG_NAME} has batch {newest}, and this query, which continues "
            f"after batch {first}, would lose rows there. Stop the other job, or give this query another directory."
        )


def check_not_foreign(output: SinkOutput, job_id: str) -> None:
    """Raise SinkDirectoryTaken if another job or query wrote the log of `output`.

    Call it for a query that starts without state, or from a state of another directory. The sink skips each batch whose
    number is in the log. So the rows of a query that counts from 0 would be lost in another query's log. The job marks
    a directory when it first writes there.
    """
    if not output.is_marked(job_id) and output.newest() >= 0:
        writers = output.writers()
        who, advice = "another job or query", "Start"
        if writers:
            who = f"job {' and job '.join(writers)}"
            advice = f"To continue after its last run: manage.py job run-again {writers[0]}. Or start"
        raise SinkDirectoryTaken(
            f"{output} holds the output of {who}: its {LOG_NAME} was not written by job {job_id}. {advice} "
            f"job {job_id} from a state of the job that wrote it, or give the query another directory, or remove the "
            "directory to start over."
        )


def check_no_other_writer(output: SinkOutput, owner: str, running: Collection[str]) -> None:
    """Raise SinkDirectoryTaken if a job among `running` writes to `output`, which a state of job `owner` names.

    Two jobs that continue one output damage each other: the older one would skip its batches, and the newer one would
    move its files away.
    """
    for job_id in running:
        if job_id == owner or output.is_written_by(job_id):
            raise SinkDirectoryTaken(
                f"{output} is written by job {job_id}, which has not ended. Two jobs that continue one output would "
                f"lose rows there. Cancel that job (manage.py job cancel {job_id}) and submit this one again, or "
                "give this query another directory."
            )


def start_without_state(output: SinkOutput, job_id: str, *, keep_output: bool) -> None:
    """Prepare `output` for a query that starts without state. Discard the output of the job's earlier attempts.

    Raises:
        SinkDirectoryTaken: see `check_not_foreign`.
        OSError, ValueError: the log cannot be read or moved.
    """
    check_not_foreign(output, job_id)
    if not output.is_marked(job_id):
        output.mark(job_id)
        return
    if output.local is not None and not keep_output:
        _move_aside(output.local, _named(output.local, output.visible()))
    output.move_log_aside()


def move_unfinished_aside(output: SinkOutput, since_ms: int) -> None:
    """Move data files of batches that never ended: not named in the log, and not older than `since_ms` (epoch).

    Call it only after the driver and every task that wrote them have ended. Raise OSError or ValueError.
    """
    root = output.local
    if root is None:
        return
    named = _named(root, output.visible())
    unnamed = {path for path in _data_files(root) if path not in named}
    _move_aside(root, {path for path in unnamed if (root / path).stat().st_mtime_ns >= since_ms * 1_000_000})


# --- data files on the local file system, by their path below the output ---


def _move_aside(output: Path, paths: Collection[Path]) -> None:
    moved = [path for path in sorted(paths) if _move(output / path, output / _ASIDE / path)]
    if moved:
        log.info("%d files of abandoned batches moved from %s to %s below it", len(moved), output, _ASIDE)


def _move_back(output: Path, paths: Collection[Path]) -> None:
    for path in paths:
        if not (output / path).exists():
            _move(output / _ASIDE / path, output / path)


def _move(source: Path, target: Path) -> bool:
    """Move a file and Hadoop's checksum file. Return False if it is missing, because it was moved or removed before."""
    if not source.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    sums, target_sums = (path.with_name(f".{path.name}.crc") for path in (source, target))
    if sums.exists():
        sums.rename(target_sums)
    source.rename(target)
    return True


def _data_files(output: Path) -> Iterator[Path]:
    """Yield the files with names of Spark's sinks. Hidden directories contain no output."""
    for directory, subdirectories, names in os.walk(output):
        subdirectories[:] = [name for name in subdirectories if not name.startswith((".", "_"))]
        for name in names:
            if _DATA_FILE.fullmatch(name):
                yield Path(directory, name).relative_to(output)


def _named(output: Path, entries: Iterable[str]) -> frozenset[Path]:
    """Return the files below `output` that the entries list. Files outside of it must not be moved."""
    found = set()
    for entry in entries:
        parts = urlsplit(json.loads(entry)["path"])
        path = Path(unquote(parts.path))
        if parts.scheme in ("file", "") and path.is_relative_to(output):
            found.add(path.relative_to(output))
    return frozenset(found)
