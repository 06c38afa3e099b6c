"""A plain script in a real driver. The job has the script's queries, and runs until the script ends."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from checkpointing.model.messages import DriverState
from tests.checkpointing.spark.sink_log import logged

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]


def copies(words: Any) -> Counter[str]:
    """Return the rows of the files in the log of Spark's file sink."""
    files = logged(words.output / "copies")
    try:
        return Counter(json.loads(row)["value"] for file in files for row in file.read_text().splitlines())
    except FileNotFoundError:  # a restore has moved a file, but not updated the log yet
        return Counter()


def test_a_script_of_two_queries_continues_from_its_checkpoint(
    job_manager: Any, drivers: Any, words: Any, eventually: Any
) -> None:
    arguments = (str(words.input), str(words.output))
    first = drivers.start(job_manager, "script.py", arguments, program="script.py")
    job_manager.await_state(1, DriverState.RUNNING)
    assert {vertex.query for vertex in job_manager.vertices} == {"words", "copies"}

    words.write("1", ["a", "b", "a"])
    eventually("the words", lambda: words.counts() == {"a": 2, "b": 1} and copies(words) == {"a": 2, "b": 1})
    given = (words.output / "id").read_text()
    checkpoint = job_manager.complete(1)
    assert checkpoint.batches == {"words": 0, "copies": 0}
    words.write("2", ["c"])
    eventually("what is abandoned", lambda: words.counts().get("c") and copies(words).get("c"))
    first.kill()

    drivers.start(job_manager, "script.py", arguments, program="script.py", attempt=2, restore=checkpoint)
    job_manager.await_state(2, DriverState.RUNNING)
    words.write("3", ["a"])
    expected = {"a": 3, "b": 1, "c": 1}
    eventually("every word once", lambda: words.counts() == expected and copies(words) == expected)
    assert (words.output / "id").read_text() == given
    assert not (words.output / "done").exists()


def test_a_script_whose_queries_end_has_ended_when_it_has(job_manager: Any, drivers: Any, words: Any) -> None:
    words.write("1", ["a", "b", "a"])
    drivers.start(job_manager, "script.py", (str(words.input), str(words.output), "once"), program="script.py")
    job_manager.await_state(1, DriverState.ENDED)
    given = (words.output / "id").read_text()
    assert (words.output / "done").read_text() == f"False False {given}"
    assert words.counts() == copies(words) == {"a": 2, "b": 1}
