"""How a driver ends after failures: every end is reported, and no process is left running."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.messages import Cancel, DriverState, Heartbeat, Refused, Register


@pytest.mark.nightly
@pytest.mark.spark
def test_an_exception_in_a_batch_fails_the_job_with_the_exception_of_the_user(
    job_manager: Any, drivers: Any, words: Any, eventually: Any
) -> None:
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments)
    job_manager.await_state(1, DriverState.RUNNING)
    words.write("1", ["fine"])
    eventually("a batch", lambda: words.counts() == {"fine": 1})
    words.write("2", ["poison"])
    exception = job_manager.await_state(1, DriverState.FAILED).exception
    assert (exception.name, exception.message) == ("ValueError", "poison is not a word")
    assert "wordcount.py" in exception.stacktrace
    assert "Caused by: py4j.Py4JException" in exception.stacktrace
    assert exception.recoverable
    assert driver.process.wait(60) == 1
    eventually("nothing of it runs", lambda: not _is_in_a_command_line(driver.work))


def _is_in_a_command_line(work: Path) -> bool:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                if str(work).encode() in (directory / "cmdline").read_bytes():
                    return True
            except OSError:
                continue
    return False


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("wordcount:nothing", "wordcount has no function 'nothing'; functions there: collector"),
        ("wordcount:collector", "cannot be called as collector(spark, args)"),
        pytest.param("wordcount", "wordcount ended without starting a streaming query", marks=pytest.mark.nightly),
    ],
)
def test_an_unsuitable_program_fails_permanently_with_the_cause(
    job_manager: Any, drivers: Any, words: Any, entry: str, message: str
) -> None:
    driver = drivers.start(job_manager, entry, words.arguments)
    exception = job_manager.await_state(1, DriverState.FAILED).exception
    assert exception.name == "ProgramError"
    assert message in exception.message
    assert not exception.recoverable
    assert driver.process.wait(60) == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("spark.master", "yarn", "When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set"),
        ("spark.driver.memory", "lots", "Invalid maximum heap size: -Xmxlots"),
    ],
)
def test_jvm_start_error_is_the_jobs_exception(
    job_manager: Any, drivers: Any, words: Any, setting: str, value: str, message: str
) -> None:
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments, configuration={setting: value})
    exception = job_manager.await_state(1, DriverState.FAILED).exception
    assert exception.name == "JvmNotStarted"
    assert message in exception.message
    assert driver.process.wait(60) == 1


@pytest.mark.nightly
@pytest.mark.spark
def test_a_jvm_that_runs_out_of_memory_ends_and_reports_it(job_manager: Any, drivers: Any, words: Any) -> None:
    driver = drivers.start(
        job_manager, "wordcount:hungry", words.arguments, configuration={"spark.driver.memory": "512m"}
    )
    job_manager.await_state(1, DriverState.RUNNING)
    exception = job_manager.await_state(1, DriverState.FAILED).exception
    assert exception.name == "JvmLost"
    assert "ran out of memory: its heap of 512m is full" in exception.message
    assert driver.process.wait(60) == 1


@pytest.mark.nightly
@pytest.mark.spark
def test_an_exception_in_a_task_names_the_task(job_manager: Any, drivers: Any, words: Any) -> None:
    drivers.start(job_manager, "wordcount:picky", words.arguments)
    job_manager.await_state(1, DriverState.RUNNING)
    exception = job_manager.await_state(1, DriverState.FAILED).exception
    assert (exception.name, exception.message) == ("KeyError", "KeyError: 'no such number'")
    assert re.fullmatch(r"numbers: task 0 of stage \d+ \(executor driver on \S+\)", exception.task_name)


def test_a_refused_driver_ends_without_output(job_manager: Any, drivers: Any, words: Any) -> None:
    job_manager.answer = Refused("attempt 1 is refused: the current attempt is 2")
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments)
    assert driver.process.wait(60) == 3
    assert "the current attempt is 2" in driver.log
    assert job_manager.state(1) is None


def test_a_driver_that_finds_no_job_manager_ends_when_its_lease_has_run_out(
    job_manager: Any, drivers: Any, words: Any
) -> None:
    job_manager.stop()
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments, lease_s=1.0)
    assert driver.process.wait(60) == 3
    assert "the lease has run out" in driver.log
    assert job_manager.heard(Heartbeat) == []


def test_an_unreadable_specification_is_reported(tmp_path: Path) -> None:
    (tmp_path / "driver.json").write_text('{"job_id": 5}')
    root = Path(__file__).resolve().parents[3]
    ended = subprocess.run(
        [sys.executable, "-m", "checkpointing.spark.driver", str(tmp_path / "driver.json")],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "DriverSpec.job_id: str is expected" in ended.stderr


def test_sigterm_ends_a_driver_without_a_failure(job_manager: Any, drivers: Any, words: Any, eventually: Any) -> None:
    job_manager.answer = Cancel("not its session")  # after this answer the driver is not registered, and retries
    driver = drivers.start(job_manager, "wordcount:wordcount", words.arguments)
    eventually("it is up", lambda: job_manager.heard(Register))
    driver.process.terminate()
    assert driver.process.wait(60) == 143
    assert job_manager.state(1) is None


@pytest.mark.nightly
@pytest.mark.spark
def test_a_misspelt_path_is_reported_as_a_program_error_with_its_traceback(
    job_manager: Any, drivers: Any, words: Any
) -> None:
    drivers.start(job_manager, "wordcount:wordcount", ("--input", f"{words.input}put", f"--output={words.output}"))
    exception = job_manager.await_state(1, DriverState.FAILED).exception
    assert exception.is_mistake
    assert exception.stacktrace.startswith("Traceback (most recent call last):")
    assert "wordcount.py" in exception.stacktrace
