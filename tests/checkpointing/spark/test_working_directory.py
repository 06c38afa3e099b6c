"""A program's relative paths are below the job's `waymark.directory`, for Python and for Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.spark.program import ProgramError
from checkpointing.spark.session import enter_directory, refuse_relative


@pytest.fixture(autouse=True)
def _put_back(spark: Any) -> Iterator[None]:
    hadoop = spark._jvm.org.apache.hadoop.fs
    local = hadoop.FileSystem.getLocal(spark._jsparkSession.sessionState().newHadoopConf())
    before, own = local.getWorkingDirectory(), Path.cwd()
    yield
    local.setWorkingDirectory(before)
    os.chdir(own)


@pytest.mark.spark
def test_python_and_spark_find_relative_paths_below_the_working_directory(spark: Any, tmp_path: Path) -> None:
    enter_directory({"waymark.directory": str(tmp_path)}, spark)
    Path("in").write_text("a\nb\n")
    spark.read.text("in").write.json("out")
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.spark
def test_without_the_key_nothing_changes(spark: Any) -> None:
    before = Path.cwd()
    enter_directory({}, spark)
    assert Path.cwd() == before


@pytest.mark.spark
@pytest.mark.parametrize(
    ("directory", "message"),
    [
        ("data", "waymark.directory: 'data' is not allowed; an absolute path is expected"),
        ("/nowhere/at/all", "/nowhere/at/all cannot be used where the driver runs .No such file or directory."),
    ],
)
def test_working_directory_that_is_not_a_directory_fails_the_job(spark: Any, directory: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        enter_directory({"waymark.directory": directory}, spark)


@pytest.mark.spark
def test_a_file_sink_below_the_directory_of_the_attempt_is_refused(spark: Any) -> None:
    with pytest.raises(ProgramError, match="Query 'q' writes to 'bronze/q', a relative path"):
        refuse_relative("q", "bronze/q", {}, spark)
    refuse_relative("q", "bronze/q", {"waymark.directory": "/data"}, spark)
    for path in ("/data/q", "file:/data/q", "s3a://bucket/q"):
        refuse_relative("q", path, {}, spark)
