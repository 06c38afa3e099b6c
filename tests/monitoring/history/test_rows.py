"""Rows are read alike from PostgreSQL and from archived files, also if files of a month overlap in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import parquet as pq

from monitoring.history import rows as history
from monitoring.history.catalogue import archived_days
from monitoring.history.rows import NotAllRead, Unreadable, Wish
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, Checkpoint, Job, OperatorCheckpoint, Run
from monitoring.reasons.archive import ArchiveReason
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import checkpoints, move

FIRST = datetime(2026, 7, 30, tzinfo=UTC)
JULY, AUGUST = date(2026, 7, 1), date(2026, 8, 1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def runs(rows: Rows, settings, tmp_path: Path) -> list[Run]:
    """Return two runs of a job whose checkpoints alternate: 60 of each run in July and August, then 5 in September."""
    settings.ARCHIVE = str(tmp_path / "archive")
    job = rows.job()
    made = [rows.run(job, started_at=FIRST) for _ in range(2)]
    for number, run in enumerate(made):
        for first, at, count in ((1, FIRST, 60), (101, datetime(2026, 9, 1, tzinfo=UTC), 5)):
            checkpoints(run, [at + (number + 2 * n) * HOUR for n in range(count)], first)
    return made


@pytest.fixture
def job(runs: list[Run]) -> Job:
    return runs[0].job


@pytest.fixture
def expected(runs: list[Run]) -> list[Checkpoint]:
    return list(Checkpoint.objects.filter(run__in=runs).order_by("triggered_at", "id"))


@pytest.fixture
def files(runs: list[Run], expected: list[Checkpoint]) -> list[ArchivedFile]:
    """Archive July in one file, and August in one file for each run."""
    for month in (JULY, AUGUST):
        move(ArchivedKind.OPERATORS, runs, month)
    parts = ((runs, JULY), (runs[:1], AUGUST), (runs[1:], AUGUST))
    return [move(ArchivedKind.CHECKPOINTS, of, month) for of, month in parts]


def all_pages(job: Job, wishes: Sequence[Wish] = (), *, upwards: bool = False, limit: int = 7) -> list[Checkpoint]:
    found: list[Checkpoint] = []
    while True:
        place = (found[-1].triggered_at, found[-1].pk) if found else None
        page = history.page(job, wishes, place, upwards=upwards, limit=limit)
        assert page.unreadable == []
        found += page.checkpoints
        if len(page.checkpoints) < limit:
            return found


def place_of(file: ArchivedFile, settings) -> Path:
    return Path(settings.ARCHIVE) / file.path


def damage(path: Path, column: str, row_group: int) -> None:
    """Change a byte of the column's values in the row group."""
    footer = pq.read_metadata(path)
    found = footer.row_group(row_group).column(footer.schema.names.index(column))
    content = bytearray(path.read_bytes())
    content[found.data_page_offset + found.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("limit", [7, 40, 1000])
def test_pages_in_both_directions_have_each_row_once_and_in_order(
    job: Job, expected: list[Checkpoint], files: list[ArchivedFile], limit: int
) -> None:
    assert Checkpoint.objects.count() == 10
    assert all_pages(job, upwards=True, limit=limit) == expected
    assert all_pages(job, limit=limit) == expected[::-1]
    assert [row.run for row in all_pages(job, limit=limit)] == [row.run for row in expected[::-1]]
    assert history.count_archived(job) == 120


@pytest.mark.parametrize(
    "wishes",
    [
        [Wish("status", "=", "FAILED")],
        [Wish("number", "=", 2), Wish("end_to_end_duration", ">=", 1030)],
        [Wish("triggered_at", ">=", FIRST + DAY), Wish("triggered_at", "<=", FIRST + 3 * DAY)],
        [Wish("is_savepoint", "=", True)],
        [Wish("number", "=", 3)],
    ],
)
def test_conditions_select_the_same_rows_as_in_postgresql(
    job: Job, runs: list[Run], request: pytest.FixtureRequest, wishes: list[Wish]
) -> None:
    before = [all_pages(job, wishes, upwards=upwards) for upwards in (False, True)]
    request.getfixturevalue("files")
    assert [all_pages(job, wishes, upwards=upwards) for upwards in (False, True)] == before


def test_archived_rows_have_the_same_values(expected: list[Checkpoint], files: list[ArchivedFile]) -> None:
    one = expected[50]
    found = history.checkpoint(one.pk)
    assert found is not None
    assert found.archived
    names = [field.attname for field in Checkpoint._meta.concrete_fields]
    assert [getattr(found, name) for name in names] == [getattr(one, name) for name in names]
    operators = history.operators_of(found)
    assert [row.name for row in operators] == ["source", "sink"]
    assert operators[0].subtask_ack_at == [one.triggered_at, None, one.triggered_at + timedelta(microseconds=1)]
    sink = history.operator(operators[1].pk)
    assert isinstance(sink, OperatorCheckpoint)
    assert (sink.name, sink.checkpoint.run.job) == ("sink", one.run.job)
    assert history.checkpoint(2**40) is None
    assert history.operator(2**40) is None


def test_files_of_a_month_that_the_page_does_not_reach_are_not_read(
    job: Job, files: list[ArchivedFile], settings
) -> None:
    for file in files[1:]:
        place_of(file, settings).unlink()
    assert history.page(job, [], limit=10).unreadable == []
    assert history.page(job, [], upwards=True, limit=20).unreadable == []
    assert len(history.page(job, [], limit=11).unreadable) == 2


def test_a_missing_file_is_named_and_the_other_files_of_its_month_are_read(
    job: Job, runs: list[Run], expected: list[Checkpoint], files: list[ArchivedFile], settings
) -> None:
    path = place_of(files[2], settings)
    content = path.read_bytes()
    path.unlink()
    lost = [row for row in expected if row.run == runs[1] and files[2].since <= row.triggered_at < files[2].until]

    found = history.page(job, [], limit=1000)
    assert found.checkpoints == [row for row in expected[::-1] if row not in lost]
    assert [(why.row, why.why) for why in found.unreadable] == [(files[2], ArchiveReason.MISSING())]
    assert history.unreadable(job, [])[0].row == files[2]
    assert history.unreadable(job, [Wish("number", "=", 1)]) == []
    ArchivedFile.objects.filter(pk=files[2].pk).update(least_id=1)
    kept = next(row for row in expected if row.run == runs[0] and row.triggered_at > lost[0].triggered_at)
    assert history.checkpoint(kept.pk) == kept  # its key is in the range of both files
    with pytest.raises(Unreadable, match="it is missing"):
        history.checkpoint(lost[0].pk)

    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    assert [why.why for why in history.page(job, [], limit=1000).unreadable] == [ArchiveReason.OTHER_CONTENT()]
    path.write_bytes(content)
    assert all_pages(job, upwards=True) == expected
    assert not ArchivedFile.objects.exclude(problem="").exists()


def test_only_the_shown_rows_are_read_with_all_columns(
    job: Job, expected: list[Checkpoint], files: list[ArchivedFile], settings
) -> None:
    """Damage in other rows is not noticed, but a page that shows these rows names the file and leaves it out."""
    damage(place_of(files[0], settings), "external_path", 0)
    old = [row for row in expected if row.triggered_at < files[0].until]
    shown = history.page(job, [], (files[0].until, 0), limit=5)
    assert (shown.checkpoints, shown.unreadable) == (old[:-6:-1], [])
    assert shown.checkpoints[0].external_path == old[-1].external_path
    found = history.page(job, [], upwards=True, limit=5)
    assert [why.row for why in found.unreadable] == [files[0]]
    assert found.checkpoints == expected[len(old) : len(old) + 5]


def test_damage_in_a_key_is_noticed(job: Job, files: list[ArchivedFile], settings) -> None:
    damage(place_of(files[0], settings), "id", 1)
    found = history.page(job, [], (files[0].until, 0), limit=5)
    assert (found.checkpoints, [why.row for why in found.unreadable]) == ([], [files[0]])


def test_a_newer_version_in_postgresql_replaces_the_archived_one(
    job: Job, expected: list[Checkpoint], files: list[ArchivedFile]
) -> None:
    old = next(row for row in expected if row.status == "FAILED")
    values = {field.attname: getattr(old, field.attname) for field in Checkpoint._meta.concrete_fields}
    newer = Checkpoint.objects.create(**values | {"id": None, "status": "COMPLETED"})
    found = all_pages(job, upwards=True)
    assert len(found) == len(expected)
    assert [row.pk for row in found if row.triggered_at == old.triggered_at] == [newer.pk]
    failed = all_pages(job, [Wish("status", "=", "FAILED")])
    assert old.triggered_at not in {row.triggered_at for row in failed}


def test_time_ranges_read_the_same_from_postgresql_and_the_archive(
    job: Job, runs: list[Run], request: pytest.FixtureRequest
) -> None:
    pieces = [
        (0, None, FIRST + HOUR, FIRST + 4 * DAY),
        (1, runs[1].pk, FIRST + 31 * HOUR, FIRST + 32 * HOUR),
        (2, None, FIRST, FIRST + 100 * DAY),
        (3, None, FIRST - 9 * DAY, FIRST),
    ]

    def read(most: int | None = None) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for number, table in history.of_pieces(job, pieces, most):
            found.setdefault(number, []).extend(map(repr, table.to_pylist()))
        return {number: sorted(texts) for number, texts in found.items()}

    before = read()
    assert {number: len(texts) for number, texts in before.items()} == {0: 95, 1: 1, 2: 130}
    request.getfixturevalue("files")
    assert read() == before
    with pytest.raises(NotAllRead, match="more than 100 checkpoints would have to be read from the archive"):
        read(100)


def test_days_are_archived_from_the_first_to_the_last_of_a_file(job: Job, files: list[ArchivedFile]) -> None:
    """The file of August covers days without checkpoints, too."""
    middle = datetime(2026, 8, 10, 12, tzinfo=UTC)
    assert archived_days(job, middle, middle + HOUR) == frozenset()
    ArchivedFile.objects.filter(pk=files[1].pk).update(until=datetime(2026, 8, 17, tzinfo=UTC))
    assert archived_days(job, middle, middle + DAY) == {middle - 12 * HOUR, middle + 12 * HOUR}
    assert archived_days(job, FIRST - DAY, FIRST + HOUR) == {FIRST}
    assert archived_days(job, FIRST, FIRST + 100 * DAY) == {FIRST + n * DAY for n in range(18)}


def test_deleted_days_cannot_be_read(job: Job, files: list[ArchivedFile]) -> None:
    ArchivedFile.objects.filter(pk=files[0].pk).update(state=ArchivedState.REMOVED)
    with pytest.raises(NotAllRead, match="checkpoints of 2026-07-31 were deleted"):
        list(history.of_pieces(job, [(0, None, FIRST + DAY, FIRST + 2 * DAY)], None))
    assert list(history.of_pieces(job, [(0, None, FIRST + 2 * DAY, FIRST + 3 * DAY)], None))
