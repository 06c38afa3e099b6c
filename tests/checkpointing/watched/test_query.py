"""Reading one checkpoint location: at most two requests a poll, and only figures that the files have."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path

import pytest

from checkpointing.storage.errors import AccessDenied
from checkpointing.watched import Query, Vanished, answers, polled
from checkpointing.watched.query import MEASURE_EVERY_MS, OFFSETS_EVERY_MS
from tests.checkpointing.spark.recordings import RECORDINGS, unpacked
from tests.checkpointing.watched.locations import START_MS, CountedFiles, Location


class Watcher:
    """Polls a location every 5 s, and counts the requests of each poll."""

    def __init__(self, location: Path, query_id: str, files: CountedFiles | None = None) -> None:
        self.files = files or CountedFiles()
        self.query = Query(str(location), query_id)
        self.now_ms = START_MS + 600_000
        self.most = 0

    def poll(self, times: int = 1) -> Query:
        for _ in range(times):
            before = len(self.files.requests)
            try:
                self.query = polled(self.query, self.files, self.now_ms)
            finally:
                self.most = max(self.most, len(self.files.requests) - before)
                self.now_ms += 5_000
        return self.query


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location(tmp_path / "q")


def watcher(location: Location, files: CountedFiles | None = None) -> Watcher:
    return Watcher(location.path, location.id, files)


def history(query: Query) -> list[tuple[int, str, int, int | None]]:
    listed = answers.checkpoints_json(query)["history"]
    return [(each["id"], each["status"], each["trigger_timestamp"], each["end_to_end_duration"]) for each in listed]


def test_batches_come_with_their_times_and_one_may_be_in_flight(location: Location) -> None:
    location.run(0, 1).begin(2)
    query = watcher(location).poll()
    assert history(query) == [
        (2, "IN_PROGRESS", START_MS + 2000, None),
        (1, "COMPLETED", START_MS + 1000, 300),
        (0, "COMPLETED", START_MS, 300),
    ]
    counts = {"total": 3, "in_progress": 1, "completed": 2, "failed": None, "restored": None}
    assert answers.checkpoints_json(query)["counts"] == counts


def test_a_batch_that_spark_deleted_is_still_counted(location: Location) -> None:
    location.run(400, 499)
    query = watcher(location).poll()
    assert answers.checkpoints_json(query)["counts"]["completed"] == 500
    assert [entry[0] for entry in history(query)] == list(range(499, 399, -1))


def test_a_commit_without_offsets_is_not_listed_because_its_start_is_not_known(location: Location) -> None:
    location.run(0, 1)
    (location.path / "offsets/0").unlink()
    assert [number for number, *_ in history(watcher(location).poll())] == [1]


def test_a_poll_that_reads_details_reports_new_batches_as_pending(location: Location) -> None:
    location.run(0, 1)
    polling = watcher(location)
    polling.poll()
    location.run(2, 3).begin(4)
    counts = answers.checkpoints_json(polling.poll())["counts"]
    assert [entry[:2] for entry in history(polling.query)][:4] == [
        *((number, "IN_PROGRESS") for number in (4, 3, 2)),
        (1, "COMPLETED"),
    ]
    assert (counts["total"], counts["completed"]) == (5, 2)
    counts = answers.checkpoints_json(polling.poll())["counts"]
    assert (counts["total"], counts["completed"], counts["in_progress"]) == (5, 4, 1)


def test_a_poll_sends_at_most_two_requests_for_any_number_of_files(location: Location) -> None:
    location.run(0, 149)
    for operator in range(2):
        location.write(f"state/{operator}/_metadata/metadata", "v1")
        for partition in range(40):
            for version in range(20):
                location.write(f"state/{operator}/{partition}/{version}.delta", "x" * 10)
    polling = watcher(location)
    for batch in count(150):
        location.run(batch, batch)
        if polling.poll().state_size is not None:
            break
        assert batch < 450
    # state, state/0, state/1 and 80 partitions, one in every second poll, and offsets now and then.
    assert 4 * 83 < len(polling.files.requests) < 8 * 83
    assert polling.most == 2
    # Without a whole copy, all changes are needed.
    assert polling.query.state_size == 2 * 40 * 20 * 10


def test_watermark_source_offsets_and_settings_are_those_of_the_newest_committed_batch(location: Location) -> None:
    location.run(0, 0).begin(1, watermark=1_700_000_000_000, source={"topic": {"0": 7}})
    location.commit(1)
    location.begin(2, watermark=1_800_000_000_000)
    position = watcher(location).poll(2).position
    assert position is not None
    assert (position.batch, position.watermark_ms) == (1, 1_700_000_000_000)
    assert position.sources == ('{"topic": {"0": 7}}',)
    assert position.settings == {"spark.sql.shuffle.partitions": "2"}


def test_values_that_are_not_in_the_files_are_null(location: Location) -> None:
    location.begin(0)
    query = watcher(location).poll()
    (entry,) = answers.checkpoints_json(query)["history"]
    unknown = ("latest_ack_timestamp", "end_to_end_duration", "checkpointed_size", "state_size", "processed_data")
    assert {name: entry[name] for name in unknown} == dict.fromkeys(unknown)
    location.commit(0)
    position = watcher(location).poll(2).position
    assert position is not None
    assert position.watermark_ms is None  # Spark writes 0 for a query without one


def test_the_size_of_the_state_belongs_to_batches_committed_after_the_measurement(location: Location) -> None:
    location.run(0, 3)
    store = "state/0/0"
    for name, size in {"2.snapshot": 100, "1.delta": 7, "2.delta": 7, "3.delta": 11, "4.delta": 13}.items():
        location.write(f"{store}/{name}", "x" * size)
    location.write(f"{store}/.4.delta.crc", "crc")
    polling = watcher(location)
    polling.poll(9)
    location.run(4, 4)
    query = polling.poll(2)
    assert [query.size_of(batch) for batch in (3, 4, 5)] == [None, 124, 124]
    location.write(f"{store}/5.delta", "x" * 1000)
    polling.now_ms += MEASURE_EVERY_MS
    polling.poll(9)
    location.run(5, 5)
    query = polling.poll(2)
    assert [query.size_of(batch) for batch in (4, 5)] == [None, 1124]  # the row of batch 4 has its size


def test_a_query_without_state_has_size_0(location: Location) -> None:
    location.run(0, 0)
    assert watcher(location).poll(4).size_of(1) == 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("v7\n{}\n1", "imports.unknown-format"),
        ("", "imports.unknown-format"),
        ("v1", "watched.not-readable"),
        (f"v1\n{'[' * 100_000}", "watched.not-readable"),
        ('v1\n{"batchWatermarkMs":', "watched.not-readable"),
        ("v1\n[]\n1", "watched.not-readable"),
        ('v1\n{"conf": 3}\n1', "watched.not-readable"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_batches_continue(
    location: Location, content: str, code: str
) -> None:
    location.run(0, 1)
    location.write("offsets/1", content, START_MS + 1000)
    polling = watcher(location)
    query = polling.poll(2)
    assert query.problem is not None
    assert query.problem["code"] == code
    assert query.position is None
    location.run(2, 2)
    polling.now_ms += OFFSETS_EVERY_MS
    query = polling.poll(4)
    assert query.committed == 2
    assert query.position is not None
    assert query.problem is None


def test_unfinished_and_foreign_files_are_not_batches(location: Location) -> None:
    location.run(0, 0)
    for name in (".1.crc", ".1.6b2c.tmp", "1.tmp", "x", "9.compact", "1" * 40):
        location.write(f"offsets/{name}", "v1")
        location.write(f"commits/{name}", "v1")
    assert [number for number, *_ in history(watcher(location).poll())] == [0]


def test_a_missing_location_is_reported_as_missing_but_an_unreadable_one_is_not(location: Location) -> None:
    location.run(0, 0)

    class Guarded(CountedFiles):
        def entries(self, path: str):  # type: ignore[no-untyped-def]
            raise AccessDenied(path)

    with pytest.raises(AccessDenied):
        watcher(location, Guarded()).poll()
    polling = watcher(location)
    polling.poll(2)
    shutil.rmtree(location.path)
    with pytest.raises(Vanished) as gone:
        polling.poll(2)
    assert gone.value.query_id == ""


def test_a_checkpoint_that_was_deleted_and_begun_again_belongs_to_another_query(location: Location) -> None:
    location.run(0, 9)
    polling = watcher(location)
    polling.poll(4)
    shutil.rmtree(location.path)
    other = Location(location.path).run(0, 1)
    with pytest.raises(Vanished) as gone:  # nothing of the other query is taken for this one's
        polling.poll()
    assert gone.value.query_id == other.id
    assert polling.most == 2


def test_an_older_copy_of_the_same_query_is_accepted(location: Location) -> None:
    location.run(0, 9)
    polling = watcher(location)
    polling.poll(4)
    for batch in range(5, 10):
        (location.path / f"commits/{batch}").unlink()
        (location.path / f"offsets/{batch}").unlink()
    assert polling.poll().started == 4
    assert polling.poll().committed == 4
    assert polling.most == 2


def test_nothing_is_kept_of_a_location_that_was_rewritten_between_two_polls(location: Location) -> None:
    location.run(0, 9)
    polling = watcher(location)
    polling.poll(4)
    location.start_ms += 60_000
    location.run(5, 12)
    assert {status for _, status, *_ in history(polling.poll())} == {"IN_PROGRESS"}
    assert history(polling.poll())[3:5] == [
        (9, "COMPLETED", START_MS + 69_000, 300),
        (8, "COMPLETED", START_MS + 68_000, 300),
    ]


def test_the_status_is_unknown_after_a_silence_that_is_unusually_long_for_the_query(location: Location) -> None:
    location.run(0, 3)
    query = watcher(location).poll()
    last_ms = START_MS + 3300
    assert query.is_active(last_ms + 9 * 60_000)
    assert not query.is_active(last_ms + 10 * 60_000)
    slow = Location(location.path.parent / "slow", every_ms=8 * 60_000).run(0, 3)
    query = watcher(slow).poll()
    last_ms = START_MS + 3 * 8 * 60_000 + 300
    assert query.is_active(last_ms + 20 * 60_000)
    assert not query.is_active(last_ms + 60 * 60_000)
    assert not Query("x", "y").is_active(last_ms)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_locations_of_spark_in_every_layout(name: str, tmp_path: Path) -> None:
    location = unpacked(name, tmp_path).location
    query_id = json.loads((location / "metadata").read_text())["id"]
    polling = Watcher(location, query_id.replace("-", ""))
    query = polling.poll(120)
    assert polling.most <= 2
    assert query.problem is None
    assert query.committed == RECORDINGS[name].batches - 1
    assert query.position is not None
    assert query.position.batch == query.committed
    assert len(query.position.sources) == 1
    size = query.size_of(query.committed + 1)
    assert size is not None
    assert (size > 0) == (location / "state").exists()
    if size:
        whole = sum(file.stat().st_size for file in (location / "state").rglob("*") if file.is_file())
        assert size < whole
