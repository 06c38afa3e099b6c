"""FileSink with a real Spark session: what readers see in its directory. See test_sinks_conform.py for restores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest

from checkpointing.sinks.conformance import QUERY, PlayedJob
from checkpointing.sinks.files import FileSink, SinkDirectoryTaken

pytestmark = pytest.mark.spark

ROWS = [("a", "NL", 1), ("b", "NL", 2), ("c", "D E/F=", 3)]
SCHEMA = "name string, country string, number long"


@pytest.fixture
def job() -> PlayedJob:
    played = PlayedJob()
    played.start("A")
    return played


@pytest.mark.parametrize(
    ("format", "partition_by"),
    [("parquet", []), ("parquet", ["country"]), ("json", ["country"]), ("csv", []), ("orc", [])],
)
def test_spark_reads_every_row_once(
    spark: Any,
    job: PlayedJob,
    tmp_path: Path,
    format: str,  # noqa: A002 - Spark's word
    partition_by: list[str],
) -> None:
    sink = FileSink(tmp_path / "out", format, partition_by=partition_by, query=QUERY)
    for batch in range(2):
        sink(spark.createDataFrame(ROWS, SCHEMA), batch)
    found = spark.read.format(format).schema(SCHEMA).load(str(tmp_path / "out"))
    rows = sorted((row.name, row.country, row.number, row.waymark_batch) for row in found.collect())
    assert rows == sorted((*row, batch) for row in ROWS for batch in range(2))


def test_pandas_reads_every_row_once(spark: Any, job: PlayedJob, tmp_path: Path) -> None:
    old = FileSink(tmp_path / "out", partition_by=["country"], query=QUERY)
    for batch in range(3):
        old(spark.createDataFrame(ROWS, SCHEMA), batch)
    job.start("B", job.snapshot(0))
    FileSink(tmp_path / "out", partition_by=["country"], query=QUERY)(spark.createDataFrame(ROWS, SCHEMA), 1)
    found = pandas.read_parquet(tmp_path / "out")
    assert sorted(zip(found.name, found.waymark_batch, strict=True)) == sorted((r[0], b) for r in ROWS for b in (0, 1))


def test_options_of_the_sink_are_passed_to_the_file_format(spark: Any, job: PlayedJob, tmp_path: Path) -> None:
    FileSink(tmp_path / "out", "csv", options={"sep": ";", "header": "true"}, query=QUERY)(
        spark.createDataFrame(ROWS[:1], SCHEMA).coalesce(1), 0
    )
    [file] = (tmp_path / "out" / "waymark_batch=0").glob("*.csv")
    assert file.read_text() == "name;country;number\na;NL;1\n"


def test_readers_see_no_rows_of_an_unfinished_batch(spark: Any, job: PlayedJob, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    out = tmp_path / "out"

    class Watching(FileSink):
        pass

    sink = Watching(out, query=QUERY)
    publish = sink._directory.publish

    def watch(*arguments: Any) -> None:
        seen.append([path.name for path in out.iterdir() if not path.name.startswith(".")])
        publish(*arguments)

    sink._directory.publish = watch  # type: ignore[method-assign]
    sink(spark.createDataFrame(ROWS, SCHEMA), 0)
    assert seen == [[]]
    assert [path.name for path in out.iterdir() if not path.name.startswith(".")] == ["waymark_batch=0"]
    assert list((out / ".waymark" / "aside").iterdir()) == []


def test_a_directory_that_another_job_filled_is_refused(spark: Any, job: PlayedJob, tmp_path: Path) -> None:
    FileSink(tmp_path / "out", query=QUERY)(spark.createDataFrame(ROWS, SCHEMA), 0)
    PlayedJob().start("A")
    with pytest.raises(SinkDirectoryTaken, match=r"holds the output of job .* or give it another directory"):
        FileSink(tmp_path / "out", query=QUERY)(spark.createDataFrame(ROWS, SCHEMA), 0)


def test_a_directory_belongs_to_one_query(spark: Any, job: PlayedJob, tmp_path: Path) -> None:
    FileSink(tmp_path / "out", query=QUERY)(spark.createDataFrame(ROWS, SCHEMA), 0)
    with pytest.raises(
        SinkDirectoryTaken, match="holds the output of query 'query': give query 'other' another directory"
    ):
        FileSink(tmp_path / "out", query="other")(spark.createDataFrame(ROWS, SCHEMA), 0)


def test_a_column_that_would_be_hidden_is_refused(spark: Any, job: PlayedJob, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'waymark_batch'"):
        FileSink(tmp_path / "out", query=QUERY)(spark.createDataFrame([(1,)], "waymark_batch long"), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "out"}, "path='out' is not allowed; an absolute path"),
        ({"path": "s3a://bucket/out"}, "path='s3a://bucket/out' is not allowed; an absolute path"),
        ({"path": "/out", "format": "avro"}, "format='avro' is not allowed; use one of parquet, json"),
        ({"path": "/out", "partition_by": "country"}, "partition_by='country' is not allowed; a list"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileSink(**options)


def test_a_file_uri_names_the_same_directory_as_its_path() -> None:
    assert FileSink("file:///data/out")._directory.path == Path("/data/out")


def test_data_files_are_recognizable_by_their_suffix(spark: Any, job: PlayedJob, tmp_path: Path) -> None:
    FileSink(tmp_path / "out", "json", query=QUERY)(spark.createDataFrame(ROWS, SCHEMA).coalesce(1), 0)
    [file] = tmp_path.rglob("*.json")
    assert len(file.read_text().splitlines()) == len(ROWS)
