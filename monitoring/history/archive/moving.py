"""Plan moves of rows to files, have Spark carry them out, and list their files."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import connection

from checkpointing.jobs.launching.deployment import MASTER
from monitoring.history import packing
from monitoring.history.archive import due, location
from monitoring.history.archive.kinds import KINDS
from monitoring.history.catalogue import Month, day_range
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState
from monitoring.reasons.reason import Reason

_ROWS = """
SELECT {columns} FROM {partition} k {joins} WHERE j.cluster_id = {cluster} AND k.{key} >= %s AND k.{key} < %s
"""
_RANGE = "SELECT count(*) FROM {partition} k {joins} WHERE j.cluster_id = %s AND k.{key} >= %s AND k.{key} < %s"
_FIGURES = (
    "rows", "size", "sha256", "footer_sha256", "least_id", "greatest_id", "since", "until", "runs", "rows_by_run",
)  # fmt: skip
Slice = tuple[datetime, datetime]


class ChangedMeanwhile(Exception):
    """Raised if rows changed while they were moved: the caller tries again later."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Mover:
    """Carries out moves in one Spark session, which is started for the first one. It is a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def _spark(self) -> Any:
        from checkpointing.state_reading.session import existing_or_new_session

        # Spark's Python workers import this package. Those of a cluster get it as a file.
        path = [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        if not settings.SPARK_MASTER:
            return self._stack.enter_context(existing_or_new_session(None))
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="waymark-archive-")))
        spark = self._stack.enter_context(existing_or_new_session(None, {MASTER: settings.SPARK_MASTER}))
        spark.sparkContext.addPyFile(str(packing.pack_for_executors(directory / "waymark_archive.zip")))
        return spark

    def move(
        self, month: Month, partition: str, slices: Sequence[Slice], replaced: Sequence[ArchivedFile] = ()
    ) -> list[ArchivedFile]:
        """Write the partition's rows in these slices, and the other rows of the replaced files, to new files.

        The new files are listed as GOING, so that they are removed if the process is killed before the caller calls
        `set_state`. Raises OSError if they cannot be written, or do not have the rows that PostgreSQL has.
        """
        from monitoring.history.pipeline import moving

        kind = KINDS[month.kind]
        ranges = _RANGE.format(partition=partition, joins=kind.joins, key=kind.table.key)
        rows = sum(file.rows for file in replaced) + _count(ranges, month, slices)
        if not rows:
            return []
        directory = location.directory_of(*month)
        listed = _listed(month, directory, -(-rows // due.ROWS_A_FILE))
        planned = _move(month, partition, slices, replaced, [file.path for file in listed])
        written = moving.carry_out(self._spark, _database_file(), planned)
        return _noted(listed, written)

    def rolled_up(
        self, files: Sequence[ArchivedFile], runs: Mapping[int, int], days: Sequence[tuple[int, date]]
    ) -> list[dict[str, Any]]:
        """Return the roll-ups of hours and days of these jobs and days, from all files with their checkpoints."""
        from monitoring.history.pipeline import moving

        schema = KINDS[ArchivedKind.CHECKPOINTS].schema
        return moving.rolled_up(self._spark, settings.ARCHIVE, schema, _checksums(files), runs, days)

    def operators_rolled_up(
        self, month: Month, partition: str, files: Sequence[ArchivedFile], checkpoints: Sequence[ArchivedFile],
        runs: Mapping[int, int], days: Sequence[tuple[int, date]],
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Return the roll-ups by operator of these jobs and days: hours and days.

        month, files: those of the operators, to which the partition's rows of these days are added. checkpoints: all
        files with their checkpoints.
        """
        from monitoring.history.pipeline import moving

        slices = [day_range(day) for day in sorted({day for _, day in days})]
        operators = _move(month, partition, slices, files)
        schema = KINDS[ArchivedKind.CHECKPOINTS].schema
        return moving.operators_rolled_up(
            self._spark, _database_file(), schema, _checksums(checkpoints), operators, runs, days
        )


def _move(
    month: Month, partition: str, slices: Sequence[Slice], replaced: Sequence[ArchivedFile], paths: Sequence[str] = ()
) -> Any:
    """Return the move of the partition's rows in these slices, and the other rows of the replaced files."""
    from monitoring.history.pipeline.moving import Move

    kind = KINDS[month.kind]
    return Move(
        schema=kind.schema,
        same=kind.same,
        order=kind.order,
        time=kind.table.key,
        encodings=kind.encodings,
        by_dictionary=kind.by_dictionary,
        statement=_ROWS.format(
            columns=kind.selected, cluster=month.cluster_id, partition=partition, joins=kind.joins, key=kind.table.key
        ),
        slices=slices,
        replaced=_checksums(replaced),
        root=settings.ARCHIVE,
        paths=paths,
    )


def _checksums(files: Sequence[ArchivedFile]) -> dict[str, str]:
    return {file.path: file.sha256 for file in files}


def _database_file() -> str:
    """Return the path of the file with the database's address, which Spark's tasks read."""
    packing.keep_database_file(packing.place())
    return str(packing.place())


def set_state(files: Sequence[ArchivedFile], state: ArchivedState, changed: Reason) -> None:
    """Set the state of new files. Raises ChangedMeanwhile(changed) if another process has removed one of them."""
    if ArchivedFile.objects.filter(pk__in=[file.pk for file in files]).update(state=state) != len(files):
        raise ChangedMeanwhile(changed)


def _count(statement: str, month: Month, slices: Sequence[Slice]) -> int:
    with connection.cursor() as cursor:
        found = 0
        for since, until in slices:
            cursor.execute(statement, [month.cluster_id, since, until])
            found += cursor.fetchone()[0]
    return found


def _listed(month: Month, directory: str, number: int) -> list[ArchivedFile]:
    """List the files that will be written, so that a killed process leaves no unknown file."""
    token, midnight = uuid.uuid4().hex, datetime.min.replace(tzinfo=UTC)
    empty: dict[str, Any] = {"rows": 0, "size": 0, "sha256": "", "footer_sha256": "", "least_id": 0, "greatest_id": 0}
    return ArchivedFile.objects.bulk_create(
        ArchivedFile(
            **month._asdict(), **empty, path=f"{directory}/{token}-{n}.parquet", state=ArchivedState.GOING,
            since=midnight, until=midnight,
        )
        for n in range(number)
    )  # fmt: skip


def _noted(listed: Sequence[ArchivedFile], written: Mapping[str, Mapping[str, Any]]) -> list[ArchivedFile]:
    """Store the figures of the written files, and return these. A range of the order may be without rows."""
    files = [file for file in listed if file.path in written]
    for file in files:
        for name in _FIGURES:
            setattr(file, name, written[file.path][name])
    ArchivedFile.objects.bulk_update(files, _FIGURES)
    return files
