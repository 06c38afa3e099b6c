"""The user's exception is extracted from Spark's exceptions. The texts are those of PySpark 4.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.spark.failure import of_exception, of_query, user_exception
from checkpointing.spark.program import ScriptExited, call_program, load_program

WORKER = """[STREAM_FAILED] Query [id = f, runId = b] terminated with exception: [PYTHON_EXCEPTION] An exception was \
thrown from the Python worker: Traceback (most recent call last):
  File "/programs/words.py", line 64, in bad
    def bad(x): raise ValueError("bad row "+x)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: bad row w0
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = f, runId = b]
"""

FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/site-packages/pyspark/sql/utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  File "/programs/words.py", line 68, in fb2
    def fb2(d,b): raise shop.errors.OutOfStock("disk is full\\nand the second line")
shop.errors.OutOfStock: disk is full
and the second line
"""

CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in g
RuntimeError: outer
"""


class Throwable:
    """A Java exception as py4j shows it."""

    def __init__(self, name: str, message: str, cause: Throwable | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> Throwable | None:
        return self._cause

    def getStackTrace(self) -> list[str]:
        return []

    def getClass(self) -> Throwable:
        return self

    def getSimpleName(self) -> str:
        return self._name

    def toString(self) -> str:
        return f"{self._name}: {self._message}"


def test_an_exception_in_a_worker_is_that_of_the_user() -> None:
    assert user_exception(WORKER) == ("ValueError", "bad row w0")


def test_an_exception_in_a_batch_function_keeps_all_lines_of_its_message() -> None:
    assert user_exception(FOREACH_BATCH) == ("OutOfStock", "disk is full\nand the second line")


def test_last_of_chained_exceptions_counts() -> None:
    assert user_exception(CHAINED) == ("RuntimeError", "outer")


def test_the_root_cause_is_used_without_a_traceback() -> None:
    root = Throwable("RuntimeException", "a.txt is not a Parquet file")
    info = of_query("words", Throwable("StreamingQueryException", "failed SQLSTATE: XXKST", root), 5)
    assert (info.name, info.message, info.timestamp) == ("RuntimeException", "a.txt is not a Parquet file", 5)
    assert "Caused by: RuntimeException: a.txt" in info.stacktrace
    assert info.task_name is None


def test_the_task_that_was_lost_is_named() -> None:
    root = Throwable("SparkException", "Task 1 failed 1 times; Lost task 1.0 in stage 7.0 (TID 9): x")
    info = of_query("words", Throwable("StreamingQueryException", "failed", root), 5)
    assert info.task_name == "words: task 1 of stage 7"


def test_an_exception_of_this_process_keeps_its_traceback() -> None:
    try:
        raise LookupError("no such column")
    except LookupError as error:
        info = of_exception(error, 5, recoverable=False)
    assert (info.name, info.message, info.recoverable) == ("LookupError", "no such column", False)
    assert "test_failure.py" in info.stacktrace


def test_a_script_that_ends_by_its_exit_code_has_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("import argparse\nargparse.ArgumentParser().parse_args()")
    program = load_program(path, "job.py", tmp_path / "program")
    with pytest.raises(ScriptExited) as exited:
        call_program(program, None, ["--unknown"])
    info = of_exception(exited.value, 1)
    assert info.message == "The script ended with exit code 2; its output is in the log."
    assert info.stacktrace.splitlines() == [f"checkpointing.spark.program.ScriptExited: {info.message}"]


def test_the_message_ends_where_the_jvm_stack_trace_begins() -> None:
    text = """Job aborted: Traceback (most recent call last):
  File "/programs/seats.py", line 20, in look_up
httpx2.HTTPStatusError: Server error '500 Internal Server Error' for url 'http://127.0.0.1:8090/aircraft'
For more information check: the status
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:2)
"""
    assert user_exception(text) == (
        "HTTPStatusError",
        (
            "Server error '500 Internal Server Error' for url 'http://127.0.0.1:8090/aircraft'\n"
            "For more information check: the status"
        ),
    )


def test_a_missing_key_is_reported_as_a_key_error() -> None:
    assert of_exception(KeyError("input"), 0).message == "KeyError: 'input'"


def test_java_error_shows_its_cause_first() -> None:
    error = RuntimeError("An error occurred while calling None.org.Some.\n: java.lang.NumberFormatException: zz")
    assert of_exception(error, 0).message == "java.lang.NumberFormatException: zz"


def test_java_error_message_is_the_innermost_cause_without_stack() -> None:
    error = RuntimeError(
        "An error occurred while calling o41.load.\n: org.apache.spark.SparkException: Job aborted.\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)\n"
        "Caused by: java.lang.RuntimeException: cannot list\n\tat java.base/java.lang.Thread.run(Thread.java:1)\n"
        "Caused by: java.net.UnknownHostException: nas.example\n\t... 3 more\n"
    )
    assert of_exception(error, 0).message == (
        "org.apache.spark.SparkException: Job aborted.\nCaused by: java.net.UnknownHostException: nas.example"
    )
    result = RuntimeError("o.a.s.SparkException: no host nas\n\tat a.b(c)\nCaused by: a.UnknownHost: no host nas")
    assert of_exception(result, 0).message == "o.a.s.SparkException: no host nas"


def test_a_message_that_is_far_too_long_keeps_its_ends() -> None:
    info = of_exception(ValueError("begin " + "x" * 20_000_000 + " end"), 1)

    assert info.message.startswith("begin xxx")
    assert info.message.endswith("xxx end")
    assert "characters left out" in info.message
    assert len(info.message) < 5_000
    assert len(info.stacktrace) < 101_000
