"""Spare drivers as real processes with sockets, but without Spark."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.jobs.launching import spare_pool
from checkpointing.jobs.launching.admission import Load
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.launching.processes import StartedProcess
from checkpointing.jobs.launching.spare_pool import SpareLimits
from checkpointing.model.driver_spec import DriverSpec
from tests.checkpointing.jobs.running_job_manager import eventually

ROOT = Path(__file__).resolve().parents[3]
AT_ONCE = SpareLimits(
    start_delay_s=0.0, retry_delay_s=0.0, kept_without_job_s=60.0, max_age_s=3600.0, swept_after_s=0.0
)

HAND_OVER_S = 60.0  # for a busy machine

DRIVER = """
import time
print("ready", flush=True)
time.sleep(600)
"""
SPARE = """
import json, os, sys, time
from pathlib import Path
from checkpointing.spark.spare import JobManagerChannel, _standard_input
directory = Path(json.load(open(sys.argv[1]))["directory"])
print("spare", flush=True)
if (directory.parent.parent / "deaf").exists():
    time.sleep(600)
channel = JobManagerChannel(_standard_input(), directory, lambda: os._exit(0))
channel.report_ready()
print("runs", channel.work(lambda: None), flush=True)
time.sleep(600)
"""
JOB_MANAGER = """
import os, sys, time
from pathlib import Path
from checkpointing.jobs.launching import spare_pool
from tests.checkpointing.jobs.test_warm_spares import HAND_OVER_S, launcher_in, spec
spare_pool._HAND_OVER_S = HAND_OVER_S
state = Path(sys.argv[1])
launcher = launcher_in(state)
launcher.launch(spec(state, 1))
while not launcher.spares.ready:
    time.sleep(0.01)
if sys.argv[2] == "hand over":
    print(launcher.launch(spec(state, 2)).pid, flush=True)
else:
    print(*[path.parent.name for path in launcher.spares.directory.glob("*/spare.json")], flush=True)
time.sleep(600)
"""


class Launcher(LocalDriverLauncher):
    """A launcher whose processes are ended after the test."""

    started: list[StartedProcess]

    def launch(self, spec: DriverSpec) -> StartedProcess:
        process = super().launch(spec)
        assert isinstance(process, StartedProcess)
        self.started.append(process)
        return process

    def close(self) -> None:
        self.end_spares()
        for process in self.started:
            process.signal(signal.SIGKILL)
            while not process.has_ended():
                os.sched_yield()


_open: list[Launcher] = []


def launcher_in(state: Path, spares: int = 1, limits: SpareLimits = AT_ONCE) -> Launcher:
    (state / "stand_in.py").write_text(DRIVER)
    (state / "stand_in_spare.py").write_text(SPARE)
    launcher = Launcher(
        {**os.environ, "PYTHONPATH": str(state)},
        lambda: Path("/opt"),
        state,
        spares=spares,
        spare_limits=limits,
        module="stand_in",
        spare_module="stand_in_spare",
    )
    launcher.started = []
    _open.append(launcher)
    return launcher


def spec(state: Path, attempt: int, **settings: str) -> DriverSpec:
    configuration = {"spark." + name.replace("__", "."): value for name, value in settings.items()}
    work = str(state / "jobs" / f"attempt-{attempt}")
    return DriverSpec(
        "0" * 32, "job", attempt, "p.py", "p:main", (), 2, configuration, work, "t", "http://127.0.0.1:1", 20.0
    )


def spares_of(state: Path) -> list[int]:
    """Return the PIDs of the processes that are, or were, spare drivers of this state directory."""
    directory = str(state / "spares").encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if directory in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.fixture(autouse=True)
def spares_have_time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_pool, "_HAND_OVER_S", HAND_OVER_S)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    while _open:
        _open.pop().close()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(tmp_path).encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


@pytest.fixture
def launcher(state: Path) -> Launcher:
    return launcher_in(state)


async def test_the_next_attempt_of_a_running_job_runs_in_the_spare_that_waited_for_it(
    launcher: Launcher, state: Path
) -> None:
    first = launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)
    (waiting,) = spares_of(state)

    second = launcher.launch(spec(state, 2))

    assert second.pid == waiting != first.pid
    await eventually(lambda: f"runs {state}/jobs/attempt-2/driver.json" in second.last_log_lines())
    assert "spare" in second.last_log_lines(), "its start is in the attempt's log, too"
    await eventually(lambda: launcher.spares.ready == 1)
    assert len(spares_of(state)) == 2, "another one waits now"
    await second.end(1.0)
    assert await second.wait() == -signal.SIGTERM


@pytest.mark.parametrize("other", [{"driver__memory": "1g"}, {"master": "local[3]"}, {"sql__extensions": "a.B"}])
async def test_a_spare_that_was_started_with_other_settings_is_not_used(
    launcher: Launcher, state: Path, other: dict[str, str]
) -> None:
    launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)
    waiting = spares_of(state)

    process = launcher.launch(spec(state, 2, **other))

    assert process.pid not in waiting
    await eventually(lambda: "ready" in process.last_log_lines())


async def test_runtime_settings_do_not_change_the_spare_signature(launcher: Launcher, state: Path) -> None:
    launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)
    other = replace(spec(state, 2, sql__shuffle__partitions="7"), job_id="1" * 32, job_name="another")

    assert launcher.launch(other).pid in spares_of(state)


async def test_a_spare_counts_and_ends_when_jobs_need_its_memory(launcher: Launcher, state: Path) -> None:
    assert launcher.spare_load == Load()
    launcher.launch(spec(state, 1, driver__memory="1g"))
    await eventually(lambda: launcher.spares.ready == 1)
    (waiting,) = spares_of(state)
    taken = Load(memory=(1024 + 384 + 2 * 128) * 2**20, drivers=1)
    assert launcher.spare_load == taken

    launcher.limit_spares(replace(taken, memory=taken.memory - 1))
    await eventually(lambda: launcher.spare_load == Load())
    assert waiting not in spares_of(state)

    launcher.limit_spares(taken)
    await eventually(lambda: launcher.spare_load == taken)


async def test_no_spare_waits_for_a_job_on_a_cluster(state: Path) -> None:
    launcher = launcher_in(state)
    process = launcher.launch(spec(state, 1, master="spark://127.0.0.1:7077"))
    await eventually(lambda: "ready" in process.last_log_lines())
    assert not launcher.spares.directory.exists()


async def test_without_the_setting_there_is_none(state: Path) -> None:
    launcher = launcher_in(state, spares=0)
    process = launcher.launch(spec(state, 1))
    await eventually(lambda: "ready" in process.last_log_lines())
    assert not launcher.spares.directory.exists()


async def test_a_killed_spare_is_replaced_and_fails_no_attempt(launcher: Launcher, state: Path) -> None:
    launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)
    (waiting,) = spares_of(state)
    os.kill(waiting, signal.SIGKILL)

    process = launcher.launch(spec(state, 2))

    assert process.pid != waiting
    await eventually(lambda: process.last_log_lines() == "ready", 60)
    await eventually(lambda: launcher.spares.ready == 1)


async def test_a_spare_that_ends_by_itself_is_replaced_and_its_connection_is_closed(
    launcher: Launcher, state: Path
) -> None:
    """pytest reports a socket that was not closed as an error."""
    launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)
    (waiting,) = spares_of(state)

    os.kill(waiting, signal.SIGKILL)

    await eventually(lambda: spares_of(state) not in ([], [waiting]))


async def test_older_of_two_ready_spares_is_used(state: Path) -> None:
    launcher = launcher_in(state, spares=2)
    launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 2)
    replaced, older = spares_of(state)
    os.kill(replaced, signal.SIGKILL)
    await eventually(lambda: len({*spares_of(state)} - {replaced}) == 2 and launcher.spares.ready == 2)

    assert launcher.launch(spec(state, 2)).pid == older


async def test_a_spare_that_does_not_answer_is_killed_before_the_attempt_starts_again(
    launcher: Launcher, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare_pool, "_HAND_OVER_S", 3.0)
    (state / "deaf").touch()
    launcher.launch(spec(state, 1))
    (deaf,) = await eventually(lambda: spares_of(state))
    await eventually(lambda: list(state.glob("spares/*/driver.log")))

    process = await asyncio.to_thread(launcher.launch, spec(state, 2))

    assert process.pid != deaf
    assert deaf not in spares_of(state)
    await eventually(lambda: process.last_log_lines() == "ready")


async def test_a_spare_that_is_too_old_ends_and_is_replaced(state: Path) -> None:
    launcher = launcher_in(state, limits=replace(AT_ONCE, max_age_s=1.0))
    launcher.launch(spec(state, 1))
    (first,) = await eventually(lambda: spares_of(state))

    await eventually(lambda: spares_of(state) and first not in spares_of(state))


async def test_no_spare_waits_for_a_job_that_has_ended(state: Path) -> None:
    launcher = launcher_in(state, limits=replace(AT_ONCE, kept_without_job_s=0.0))
    process = launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)

    await process.end(5.0)

    await eventually(lambda: spares_of(state) == [])
    await eventually(lambda: list(launcher.spares.directory.iterdir()) == [])


async def test_after_all_jobs_have_ended_spares_return_with_the_next_driver(state: Path) -> None:
    launcher = launcher_in(state, limits=replace(AT_ONCE, kept_without_job_s=0.0))
    process = launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)
    await process.end(5.0)
    await eventually(lambda: "spare-drivers" not in [thread.name for thread in threading.enumerate()])

    launcher.launch(spec(state, 2))

    await eventually(lambda: launcher.spares.ready == 1)


async def test_spares_that_cannot_be_started_now_are_started_later(
    launcher: Launcher, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    launcher.spares.directory.write_text("a file where the spares' directory should go")
    launcher.launch(spec(state, 1))
    await eventually(lambda: "no spare driver could be started" in caplog.text)

    launcher.spares.directory.unlink()

    await eventually(lambda: launcher.spares.ready == 1)


async def test_spares_end_when_leadership_is_lost_and_return_with_the_next_driver(
    launcher: Launcher, state: Path
) -> None:
    launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)

    launcher.end_spares()

    assert spares_of(state) == []
    assert list(launcher.spares.directory.iterdir()) == []
    process = launcher.launch(spec(state, 2))
    await eventually(lambda: launcher.spares.ready == 1)
    assert process.pid not in spares_of(state)


def killed_job_manager(state: Path, moment: str) -> str:
    """Return the output of a job manager that was killed at `moment`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(state)}
    command = [sys.executable, "-c", JOB_MANAGER, str(state), moment]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        process.kill()
    return said


async def test_a_spare_ends_with_a_job_manager_that_is_killed(state: Path) -> None:
    directory = killed_job_manager(state, "before")

    assert directory
    await eventually(lambda: spares_of(state) == [])
    launcher = launcher_in(state)
    launcher.launch(spec(state, 2))
    await eventually(lambda: launcher.spares.ready == 1)
    assert not (state / "spares" / directory).exists(), "the next job manager removes what it left"


async def test_a_former_spare_survives_its_job_manager_and_is_adopted_only_for_its_attempt(
    launcher: Launcher, state: Path
) -> None:
    pid = int(killed_job_manager(state, "hand over"))
    work = state / "jobs" / "attempt-2"
    await eventually(lambda: "runs" in (work / "driver.log").read_text())

    assert launcher.adopt(pid, "0" * 32, 1, state / "jobs" / "attempt-1") is None
    assert launcher.adopt(os.getpid(), "0" * 32, 2, work) is None
    adopted = launcher.adopt(pid, "0" * 32, 2, work)
    assert adopted is not None
    await eventually(lambda: launcher.spares.ready == 1)
    await adopted.end(5.0)
    assert launcher.adopt(pid, "0" * 32, 2, work) is None


async def test_two_attempts_never_share_a_spare(launcher: Launcher, state: Path) -> None:
    launcher.launch(spec(state, 1))
    await eventually(lambda: launcher.spares.ready == 1)
    attempts = [spec(state, number) for number in (2, 3, 4)]

    started = await asyncio.gather(*(asyncio.to_thread(launcher.launch, each) for each in attempts))

    assert len({process.pid for process in started}) == 3
