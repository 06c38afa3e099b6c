"""A real spare driver, whose JVM and session have started, becomes the next attempt of a job."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.launching.processes import StartedProcess
from checkpointing.jobs.launching.spare_pool import SpareLimits
from checkpointing.model.driver_spec import DriverSpec, RestoreSpec
from checkpointing.model.messages import DriverState, Stop

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "programs" / "wordcount.py"


class Launched:
    """A launcher of drivers with one spare, as in the job manager. It ends all processes after the test."""

    def __init__(self, state: Path, java_home: Path) -> None:
        limits = SpareLimits(start_delay_s=0.0)
        self.launcher = LocalDriverLauncher(os.environ, lambda: java_home, state, spares=1, spare_limits=limits)
        self.processes: list[StartedProcess] = []

    def launch(self, spec: DriverSpec) -> StartedProcess:
        process = self.launcher.launch(spec)
        assert isinstance(process, StartedProcess)
        self.processes.append(process)
        return process

    def close(self) -> None:
        self.launcher.end_spares()
        for process in self.processes:
            kill(process)


def kill(process: StartedProcess) -> None:
    process.signal(signal.SIGKILL)
    while not process.has_ended():
        time.sleep(0.01)


@pytest.fixture
def launched(tmp_path: Path, java_home: Path) -> Iterator[Launched]:
    made = Launched(tmp_path / "state", java_home)
    yield made
    made.close()


def test_a_spare_becomes_the_next_attempt_with_the_settings_state_and_directories_of_it(
    job_manager: Any, words: Any, launched: Launched, tmp_path: Path, eventually: Any
) -> None:
    first = DriverSpec(
        job_id=job_manager.job_id,
        job_name="words",
        attempt=1,
        program_path=str(PROGRAM),
        entry_class="wordcount:wordcount",
        program_args=words.arguments,
        parallelism=2,
        configuration={"spark.sql.session.timeZone": "UTC"},
        work_directory=str(tmp_path / "state" / "jobs" / "attempt-1"),
        timeline="timeline-1",
        job_manager_address=job_manager.address,
        lease_s=60.0,
    )
    process = launched.launch(first)
    job_manager.await_state(1, DriverState.RUNNING)
    words.write("1", ["a", "b", "a"])
    eventually("a batch", lambda: words.counts() == {"a": 2, "b": 1})
    checkpoint = job_manager.complete(1)
    eventually("a spare", lambda: launched.launcher.spares.ready == 1)
    kill(process)

    work = tmp_path / "state" / "jobs" / "attempt-2"
    second = replace(
        first,
        attempt=2,
        job_name="renamed",
        work_directory=str(work),
        entry_class="wordcount:shown",
        program_args=(*words.arguments, "--show", str(tmp_path / "shown")),
        configuration={"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.streaming.minBatchesToRetain": "33"},
        restore=RestoreSpec(
            checkpoint.location, checkpoint.checkpoint_id, is_savepoint=False, allow_non_restored_state=False
        ),
    )
    (spare,) = [path.parent for path in launched.launcher.spares.directory.glob("*/spare.json")]
    heir = launched.launch(second)
    job_manager.await_state(2, DriverState.RUNNING)
    words.write("2", ["b", "c"])
    eventually("the counts go on", lambda: Counter(words.counts()) == Counter({"a": 2, "b": 2, "c": 1}))

    assert (spare / "driver.json").samefile(work / "driver.json"), "the attempt runs in the spare"
    assert (tmp_path / "shown").read_text() == "renamed Asia/Tokyo 33"
    assert sorted(path.name for path in (work / "queries").iterdir()) == ["0-words"]
    log = heir.last_log_lines()
    assert f"taken by attempt 2 of job {job_manager.job_id}" in log
    assert job_manager.complete(2).batches == {"words": 1}
    figures = [acknowledgement.metrics for acknowledgement in job_manager.takes[2].acknowledgements]
    assert sum(metrics.processed_records for metrics in figures) > 0, "the event log of the spare's session is read"

    job_manager.send(Stop(job_manager.session_id))
    job_manager.await_state(2, DriverState.FINISHED)
    eventually("its process has ended", heir.has_ended)
    assert not (spare / "spark").exists(), "what Spark kept goes with it"
