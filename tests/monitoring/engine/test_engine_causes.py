"""The part of an engine's error text that people see."""

from __future__ import annotations

import pytest

from monitoring.engine.causes import from_errors, human, root_cause

PYTHON = """org.apache.spark.sql.streaming.StreamingQueryException: Job aborted
\tat org.apache.spark.X.run(X.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "wordcount.py", line 3, in f
    return table[key]
           ~~~~~^^^^^
KeyError: 'N12345'

\tat org.apache.spark.Y.read(Y.scala:2)"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("org.apache.flink.rest.NotFoundException: Job 1 not found\n\tat x", "Job 1 not found"),
        ("java.util.CompletionException: java.io.IOException: disk: full", "disk: full"),
        ("java.lang.NullPointerException", "NullPointerException"),
        ("java.lang.ClassNotFoundException: Nobody", "ClassNotFoundException: Nobody"),
        ("a.B: java.nio.file.FileAlreadyExistsException: /sp/file", "FileAlreadyExistsException: /sp/file"),
        ("Checkpoint expired before completing.", "Checkpoint expired before completing."),
        ("", ""),
        ("x" * 5000, "x" * 999 + "…"),
    ],
)
def test_the_first_line_without_its_class_names(text, sentence):
    assert human(text) == sentence


def test_the_innermost_exception_is_the_cause():
    assert (
        root_cause("a.B: outer\n\tat x\nCaused by: c.D: middle\nCaused by: e.F: the inner one\n\tat y")
        == "the inner one"
    )


def test_the_python_exception_of_the_program_precedes_its_wrappers():
    assert root_cause(PYTHON) == "KeyError: 'N12345'"


@pytest.mark.parametrize(
    ("errors", "sentence"),
    [
        (["a.B: it said\nCaused by: c.D: that is why"], "it said: that is why"),
        (["a.B: it failed: that is why\nCaused by: c.D: that is why"], "it failed: that is why"),
        (
            [
                "Internal server error.",
                "<Exception on server side:\na.B: out\nCaused by: c.D: that is why\nEnd of exception>",
            ],
            "that is why",
        ),
        (["Internal server error.", "<Exception on server side:\na.B: that is why\n\tat x"], "that is why"),
        ([], ""),
        ("text", ""),
        ([7], ""),
    ],
)
def test_an_error_body_in_one_sentence(errors, sentence):
    assert from_errors(errors) == sentence
