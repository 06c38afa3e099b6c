"""Which failures before the first status RUNNING are mistakes of the program, with real Spark."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointing.spark.mistakes import is_mistake, may_pass
from checkpointing.spark.program import Program, call_program

pytestmark = pytest.mark.spark


def failure(spark: Any, function: Callable[[Any, dict[str, str]], Any]) -> Exception:
    """Call the program and start its query. Return the exception that this raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the subject is which one it is
        call_program(Program(function, Path("program.py"), "program:main"), spark, {}).start()
    return raised.value


def missing_argument(spark: Any, args: dict[str, str]) -> Any:
    return spark.readStream.json(args["input"])


def misspelt_column(spark: Any, args: dict[str, str]) -> Any:
    return spark.readStream.format("rate").load().select("valeu").writeStream


def missing_kafka(spark: Any, args: dict[str, str]) -> Any:
    return spark.readStream.format("kafka").option("subscribe", "t").load().writeStream


def missing_connector(spark: Any, args: dict[str, str]) -> Any:
    return spark.readStream.format("rate").load().writeStream.format("delta")


def unsupported_output_mode(spark: Any, args: dict[str, str]) -> Any:
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    return counts.writeStream.format("console").outputMode("append")


def own_check(spark: Any, args: dict[str, str]) -> Any:
    raise RuntimeError("the variable REGION is not set")


def syntax_of_sql(spark: Any, args: dict[str, str]) -> Any:
    return spark.sql("SELEC 1")


@pytest.mark.parametrize(
    "program",
    [
        missing_argument, misspelt_column, missing_kafka, missing_connector, unsupported_output_mode, own_check,
        syntax_of_sql,
    ],
)  # fmt: skip
def test_an_exception_of_the_program_is_a_program_error(
    spark: Any, program: Callable[..., Any], tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    error = failure(spark, program)
    assert is_mistake(error, call_program, spark), repr(error)


def reads(path: str) -> Callable[[Any, dict[str, str]], Any]:
    """Return a program whose query reads the files in a directory."""

    def program(spark: Any, args: dict[str, str]) -> Any:
        return spark.readStream.schema("value string").json(path).writeStream

    return program


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_missing_path_next_to_existing_ones_is_misspelt(spark: Any, tmp_path: Path, is_remote: bool) -> None:
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.misspelt.link./lake", tmp_path.as_uri())
    root = "viewfs://misspelt/lake" if is_remote else str(tmp_path)
    error = failure(spark, reads(f"{root}/data/inptu"))
    assert not is_mistake(error, call_program, spark), "no directory around it: not mounted"
    (tmp_path / "data").mkdir()
    assert not is_mistake(error, call_program, spark), "an empty one: not mounted, or nothing has come yet"
    (tmp_path / "data" / "input").mkdir()
    assert is_mistake(error, call_program, spark), repr(error)
    pattern = failure(spark, lambda spark, args: spark.read.json(f"{root}/data/2026-*"))
    assert not is_mistake(pattern, call_program, spark), "it may match later"


def connection_refused(spark: Any, args: dict[str, str]) -> Any:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return socket.create_connection(unused.getsockname(), timeout=5)


def file_system_away(spark: Any, args: dict[str, str]) -> Any:
    return json.loads(Path("/not/mounted/settings.json").read_text())


def input_away(spark: Any, args: dict[str, str]) -> Any:
    return spark.readStream.schema("value string").json("/not/mounted/input").writeStream


class NoBrokersAvailable(Exception):
    """An exception with the name of kafka-python's, which is no OSError."""


def broker_away(spark: Any, args: dict[str, str]) -> Any:
    raise NoBrokersAvailable("localhost:9092")


def wrapped(spark: Any, args: dict[str, str]) -> Any:
    try:
        connection_refused(spark, args)
    except OSError as error:
        raise RuntimeError("no settings") from error


def failing_task(spark: Any, args: dict[str, str]) -> Any:
    return spark.range(1).selectExpr("raise_error('an executor is gone')").collect()


@pytest.mark.parametrize(
    "program", [connection_refused, file_system_away, input_away, broker_away, wrapped, failing_task]
)
def test_a_cause_that_may_pass(spark: Any, program: Callable[..., Any]) -> None:
    error = failure(spark, program)
    assert not is_mistake(error, call_program, spark), repr(error)


def test_an_error_from_outside_the_program_is_not_a_program_error(spark: Any) -> None:
    assert not is_mistake(KeyError("ours"), call_program)


def test_a_suppressed_context_of_an_exception_is_ignored() -> None:
    error = ValueError("the port is no number")
    error.__context__, error.__suppress_context__ = OSError("away"), True
    assert not may_pass(error)
