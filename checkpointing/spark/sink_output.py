"""The output directory of Spark's own file sink and the log in it, accessed through Hadoop in the driver's JVM.

So paths and credentials have the same meaning as in Spark, and the code is the same for each file system.

  <output>/_spark_metadata/<batch>             the data files of a batch, one line of JSON each
  <output>/_spark_metadata/<batch>.compact     those of this batch and of all earlier ones
  <output>/._spark_metadata.of.<job>           marks the output as the job's
  <output>/._spark_metadata.abandoned.<…>/     logs of earlier runs of a query that started without state again

Spark reads the newest compacted file as the complete list. It takes the distance of the two newest ones as the interval
in which it compacts the log. It never reads older files again, and removes them later.
"""

from __future__ import annotations

import errno
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from checkpointing.checkpoint_location.layout import entries_up_to
from checkpointing.spark_internals import hadoop_configuration, jvm_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_NAME = "_spark_metadata"
COMPACT_INTERVAL = "spark.sql.streaming.fileSink.log.compactInterval"
_FORMAT = "v1"
_LISTINGS = 5


def compact_interval(spark: SparkSession) -> int:
    """Return after how many batches Spark compacts a log that has no compacted file yet."""
    return int(str(spark.conf.get(COMPACT_INTERVAL, "10")))


@dataclass(frozen=True)
class SinkLogEnd:
    """The end of a log: the last file is for `batch`, and the log is compacted every `interval` batches."""

    batch: int
    interval: int

    @property
    def first(self) -> int:
        """Return the first batch number that this end uses."""
        return self.batch - self.interval


class SinkOutput:
    """The output directory at `path`, as the program names it. All methods raise OSError.

    `copies` is a local directory for copies of the log's files, whose names are never written again.
    """

    def __init__(self, spark: SparkSession, path: str, copies: Path) -> None:
        self._jvm = jvm_view(spark)
        self._copies = copies
        with _as_os_error(path):
            plain = self._path(path)
            self._files = plain.getFileSystem(hadoop_configuration(spark))
            self._output = self._files.makeQualified(plain)
            self._log = self._path(self._output, LOG_NAME)

    def __str__(self) -> str:
        return str(self._output.toString())

    @property
    def local(self) -> Path | None:
        """Return the directory on the local file system, or None on any other."""
        uri = self._output.toUri()
        return Path(uri.getPath()) if uri.getScheme() == "file" else None

    def is_at(self, path: str) -> bool:
        """Return whether `path`, which a snapshot names, is this directory."""
        with _as_os_error(path):
            return bool(self._files.makeQualified(self._path(path)).equals(self._output))

    # --- the log ---

    def log_names(self) -> set[str]:
        """Return the names of the log's files, empty without a log. Remove copies of files that no longer exist."""
        with _as_os_error(str(self)):
            if not self._files.exists(self._log):
                return set()
            names = {str(each.getPath().getName()) for each in self._files.listStatus(self._log)}
        for copy in self._copies.glob("*"):
            if copy.name not in names:
                copy.unlink(missing_ok=True)
        return names

    def size_of(self, name: str) -> int:
        """Return the size of a file of the log. Raise FileNotFoundError."""
        with _as_os_error(f"{self}/{LOG_NAME}/{name}"):
            return int(self._files.getFileStatus(self._path(self._log, name)).getLen())

    def copy_of(self, name: str) -> Path:
        """Return a local copy of a file of the log. Raise FileNotFoundError."""
        copy = self._copies / name
        if not copy.exists() or copy.stat().st_size != self.size_of(name):
            self._copies.mkdir(parents=True, exist_ok=True)
            partial = self._copies / f".{name}.tmp"
            with _as_os_error(f"{self}/{LOG_NAME}/{name}"):
                self._files.copyToLocalFile(False, self._path(self._log, name), self._path(str(partial)), True)
            partial.rename(copy)
        return copy

    def newest(self) -> int:
        """Return the log's newest number, or -1 if it has none."""
        return max(_numbers(self.log_names()), default=-1)

    def visible(self) -> list[str]:
        """Return the current entries, one line of JSON for each data file."""
        return self._read(_visible)

    def visible_as_of(self, batch: int) -> list[str]:
        """Return the entries up to `batch`, or all if the log no longer distinguishes them."""
        return self._read(lambda names: entries_up_to(names, batch) or _visible(names))

    def all_entries(self) -> list[str]:
        """Return the entries of every file that the log still has."""
        return self._read(sorted)

    def _read(self, choose: Callable[[Collection[str]], Iterable[str]]) -> list[str]:
        """Return the entries of the chosen files. If Spark removes one of them meanwhile, list the log again."""
        for _ in range(_LISTINGS):
            names = choose([name for name in self.log_names() if _number(name) is not None])
            try:
                return read_entries(self.copy_of(name) for name in names)
            except FileNotFoundError as error:
                gone = error
        raise gone

    def end_log(self, entries: Sequence[str], end: SinkLogEnd) -> None:
        """Make the log list only `entries`, by adding two files. Each file appears as a whole.

        A reader that starts to read the log between the two files fails.
        """
        names = [f"{number}.compact" for number in (end.first, end.batch)]
        with tempfile.TemporaryDirectory() as directory:
            content = Path(directory, "entries")
            content.write_text("\n".join([_FORMAT, *entries]))
            for name in names:
                partial = self._path(self._log, f".{name}.{uuid.uuid4()}.tmp")
                with _as_os_error(f"{self}/{LOG_NAME}/{name}"):
                    self._files.copyFromLocalFile(False, True, self._path(str(content)), partial)
                    self._rename(partial, self._path(self._log, name))

    def move_log_aside(self) -> None:
        with _as_os_error(str(self)):
            if self._files.exists(self._log):
                self._rename(self._log, self._path(self._output, f".{LOG_NAME}.abandoned.{uuid.uuid4().hex}"))

    # --- ownership ---

    def is_marked(self, job_id: str) -> bool:
        with _as_os_error(str(self)):
            return bool(self._files.exists(self._mark(job_id)))

    def mark(self, job_id: str) -> None:
        with _as_os_error(str(self)):
            self._files.create(self._mark(job_id), True).close()

    def writers(self) -> list[str]:
        """Return the jobs that began to write here without state."""
        prefix = f".{LOG_NAME}.of."
        with _as_os_error(str(self)):
            found = self._files.globStatus(self._path(self._output, f"{prefix}*")) or ()
            return sorted(str(each.getPath().getName()).removeprefix(prefix) for each in found)

    def mark_continued(self, job_id: str) -> None:
        """Mark that the job continues another job's output here. The job must not start over with that output."""
        with _as_os_error(str(self)):
            self._files.create(self._mark(job_id, "continued"), True).close()

    def is_written_by(self, job_id: str) -> bool:
        """Return whether the job has ever written here."""
        with _as_os_error(str(self)):
            return any(bool(self._files.exists(self._mark(job_id, how))) for how in ("of", "continued"))

    def _mark(self, job_id: str, how: str = "of") -> Any:
        return self._path(self._output, f".{LOG_NAME}.{how}.{job_id}")

    def _path(self, *parts: Any) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(*parts)

    def _rename(self, source: Any, target: Any) -> None:
        if not self._files.rename(source, target):
            raise OSError(f"{source.toString()} cannot be renamed to {target.getName()}")


@contextmanager
def _as_os_error(path: str) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        kind, text = java.getClass().getSimpleName(), f"{java.getClass().getSimpleName()}: {java.getMessage()}"
        if kind == "FileNotFoundException":
            raise FileNotFoundError(errno.ENOENT, text, path) from error
        raise OSError(errno.EIO, text, path) from error


# --- the files of a log, by name ---


def read_entries(files: Iterable[Path]) -> list[str]:
    """Return the entries of local copies of a log's files. Raise ValueError if a file has another format."""
    found: list[str] = []
    for file in files:
        version, *entries = file.read_text().splitlines() or [""]
        if version != _FORMAT:
            raise ValueError(f"{LOG_NAME}/{file.name} has format {version!r}; only {_FORMAT!r} is supported")
        found += entries
    return list(dict.fromkeys(found))


def log_order(name: str) -> tuple[int, str]:
    return (_number(name) or 0, name)


def _visible(names: Collection[str]) -> list[str]:
    """Return the files of a sink's log that count: its newest compacted file and all files after it."""
    base = max((name for name in names if name.endswith(".compact")), key=log_order, default="")
    first = -1 if not base else _number(base) or 0
    return sorted((name for name in names if name == base or (_number(name) or 0) > first), key=log_order)


def _numbers(names: Iterable[str]) -> Iterator[int]:
    return (number for name in names if (number := _number(name)) is not None)


def _number(name: str) -> int | None:
    """Return the file's number, or None if it is not a file of the log itself."""
    number = name.removesuffix(".compact")
    return int(number) if number.isdigit() else None
