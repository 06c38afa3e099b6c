"""A program that stops Spark while its queries run gets this cause, whichever call of Spark fails first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from checkpointing.clock import ManualClock
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.spark.driver import Driver


def driver(tmp_path: Path, context: Any) -> Any:
    spec = DriverSpec(
        "0" * 32, "job", 1, "p.py", "p:main", (), None, {}, str(tmp_path), "t", "http://127.0.0.1:9", 20.0
    )
    made: Any = Driver(spec, ManualClock())
    made._spark = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))
    made._agent = object()
    return made


@pytest.mark.parametrize("error", [AttributeError("'NoneType' object has no attribute 'sc'"), ValueError("no session")])
def test_failure_after_spark_was_stopped_names_that_cause(tmp_path: Path, error: Exception) -> None:
    info = driver(tmp_path, None)._explain(error)

    assert info.name == "ContextStopped"
    assert "A program must not call stop(); the job manager stops it" in info.message
    assert info.message.endswith(str(error))


def test_another_failure_is_not_changed(tmp_path: Path) -> None:
    runs = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    assert driver(tmp_path, runs)._explain(ValueError("bad row")).name == "ValueError"


def test_a_jvm_that_does_not_answer_hides_no_failure(tmp_path: Path) -> None:
    def hangs_up() -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    assert driver(tmp_path, SimpleNamespace(sc=hangs_up))._explain(ValueError("bad row")).name == "ValueError"
