"""Missing input files that a restored query would have to read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpointing.spark.lost_input import InputLost, check_input_exists, lost_input_message


class Restored:
    """A checkpointLocation that was restored to batch 4, at entry 2 of its file source's log."""

    def __init__(self, root: Path) -> None:
        self.location, self.input = root / "query", root / "in put"
        self.input.mkdir()
        for name in ("offsets", "sources/0"):
            (self.location / name).mkdir(parents=True)
        self.offsets('{"logOffset":2}')

    def offsets(self, *positions: str) -> None:
        (self.location / "offsets/4").write_text("\n".join(["v1", "{}", *positions]))

    def log(self, name: str, *numbers: int) -> None:
        lines = [json.dumps({"path": (self.input / f"{n}.txt").as_uri(), "batchId": n}) for n in numbers]
        (self.location / "sources/0" / name).write_text("\n".join(["v1", *lines]))

    def check(self) -> None:
        check_input_exists("words", self.location, 4)


@pytest.fixture
def restored(tmp_path: Path) -> Restored:
    return Restored(tmp_path)


def test_files_of_the_restored_batch_and_before_may_be_missing(restored: Restored) -> None:
    restored.log("1.compact", 0, 1)
    restored.log("2", 2)
    restored.check()


def test_files_that_were_listed_later_must_exist(restored: Restored) -> None:
    restored.log("3.compact", 0, 1, 2, 3)
    restored.log("4", 4)
    (restored.input / "3.txt").touch()
    with pytest.raises(InputLost, match=r"'words' must read the input after batch 4 again, .*: file:.*/4.txt can"):
        restored.check()
    (restored.input / "4.txt").touch()
    restored.check()


def test_only_the_first_of_many_lost_files_are_named(restored: Restored) -> None:
    restored.log("9.compact", *range(10))
    with pytest.raises(InputLost, match=r"3.txt, .*5.txt and 4 more cannot be found"):
        restored.check()


def test_a_file_in_another_place_is_not_searched(restored: Restored) -> None:
    entry = json.dumps({"path": "s3a://bucket/3.txt", "batchId": 3})
    (restored.location / "sources/0/3").write_text(f"v1\n{entry}")
    restored.check()


def test_a_source_of_another_kind_is_not_checked(restored: Restored) -> None:
    restored.offsets('{"topic":{"0":17}}')
    (restored.location / "sources/0/0").write_text("what it likes")
    restored.check()
    restored.offsets("17")
    restored.check()
    restored.offsets("-")
    restored.check()


KAFKA = (
    "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost because they are not available in "
    "Kafka any more; either the data was aged out by Kafka or the topic may have been deleted."
)
BEFORE_SPARK_4 = (
    "Partition topic-0's offset was changed from 17 to 3. If you don't want your streaming query to fail on such "
    'cases, set the source option "failOnDataLoss" to "false".'
)


@pytest.mark.parametrize("message", [KAFKA, BEFORE_SPARK_4])
def test_lost_input_message_includes_advice(message: str) -> None:
    words = lost_input_message("words", "SparkException", message)
    assert words is not None
    assert words.startswith(f"A source of query 'words' has lost input that it should read: {message} A restart meets")
    assert words.endswith("failOnDataLoss=false.")


def test_a_python_source_reports_lost_input_by_its_exception() -> None:
    assert lost_input_message("words", "SourceInputLost", "rows 4 to 7 are gone.") is not None
    assert lost_input_message("words", "ValueError", "rows 4 to 7 are gone.") is None
