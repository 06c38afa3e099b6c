"""Faults of a job, single and combined. Each fault is a function that returns the paths that it damaged."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import Job, JobManagers
from tests.checkpointing.spark.standalone_cluster import StandaloneCluster
from tests.waiting import eventually


@dataclass(frozen=True)
class Target:
    """The target of faults. `cluster` runs the job's tasks; if it is None, the driver runs them."""

    managers: JobManagers
    job: Job
    poison: Path
    chance: random.Random
    cluster: StandaloneCluster | None = None


@dataclass(frozen=True)
class Damage:
    """The result of a fault.

    With `restarts`, the fault ends the attempt. `paths` are the damaged directories of checkpoints or attempts.
    """

    restarts: bool = True
    paths: tuple[Path, ...] = ()
    how: str = ""


Fault = Callable[[Target], Damage]


def driver_is_killed(target: Target) -> Damage:
    """Kill all processes of the driver, as if the machine failed, or only Python or Java, as the OOM killer does."""
    match target.chance.choice(("all", "python", "java")):
        case "all":
            target.job.signal_driver(signal.SIGKILL)
        case "python":
            target.job.signal_driver(signal.SIGKILL, whole_group=False)
        case "java":
            os.kill(eventually("a JVM", target.job.java_of_driver), signal.SIGKILL)
    return Damage()


def task_raises(target: Target) -> Damage:
    """Make a task raise an error. On a cluster, Spark repeats the task up to three times, so the attempt continues."""
    target.poison.touch()
    eventually("a poisoned row", lambda: not target.poison.exists())
    return Damage(restarts=target.cluster is None)


def leader_is_killed(target: Target) -> Damage:
    target.managers.kill_leader()
    return Damage(restarts=False)


def newest_checkpoint_is_damaged(target: Target) -> Damage:
    return _damaged(target, _newest_checkpoint)


def live_location_is_damaged(target: Target) -> Damage:
    return _damaged(target, _live_location)


def executor_is_killed(target: Target) -> Damage:
    """Kill an executor. Spark repeats its tasks elsewhere and starts a new executor. The driver continues."""
    assert target.cluster is not None
    os.kill(target.chance.choice(eventually("an executor", target.cluster.executors)), signal.SIGKILL)
    return Damage(restarts=False)


# --- combined faults ---


def checkpoint_and_live_location_are_damaged(target: Target) -> Damage:
    """Damage the newest checkpoint and the live location, so that only an older checkpoint is usable."""
    return _damaged(target, _newest_checkpoint, _live_location)


def driver_and_leader_are_killed(target: Target) -> Damage:
    """Kill driver and leader, so that the next leader finds a job without a driver."""
    target.job.signal_driver(signal.SIGKILL)
    target.managers.kill_leader()
    return Damage()


def checkpoint_is_damaged_and_leader_killed(target: Target) -> Damage:
    found = newest_checkpoint_is_damaged(target)
    target.managers.kill_leader()
    return found


def task_raises_without_a_leader(target: Target) -> Damage:
    target.poison.touch()
    target.managers.kill_leader()
    eventually("a poisoned row", lambda: not target.poison.exists())
    return Damage(restarts=target.cluster is None)


def executor_and_leader_are_killed(target: Target) -> Damage:
    found = executor_is_killed(target)
    target.managers.kill_leader()
    return found


def executor_and_driver_are_killed(target: Target) -> Damage:
    executor_is_killed(target)
    return driver_is_killed(target)


FAULTS: tuple[Fault, ...] = (
    driver_is_killed,
    task_raises,
    leader_is_killed,
    newest_checkpoint_is_damaged,
    live_location_is_damaged,
    checkpoint_and_live_location_are_damaged,
    driver_and_leader_are_killed,
    checkpoint_is_damaged_and_leader_killed,
    task_raises_without_a_leader,
)
ON_A_CLUSTER: tuple[Fault, ...] = (executor_is_killed, executor_and_leader_are_killed, executor_and_driver_are_killed)


# --- damage ---


def _damaged(target: Target, *victims: Callable[[Target], tuple[Path, list[Path]]]) -> Damage:
    """Stop the driver, so that it writes nothing newer, and damage a file of each victim."""
    target.job.signal_driver(signal.SIGSTOP)
    paths, hows = [], []
    for victim in victims:
        path, files = victim(target)
        paths.append(path)
        hows.append(damage(target.chance.choice(files), target.chance))
    target.job.signal_driver(signal.SIGKILL)
    return Damage(paths=tuple(paths), how=", ".join(hows))


def _newest_checkpoint(target: Target) -> tuple[Path, list[Path]]:
    completed = eventually("a completed checkpoint", target.job.completed)
    directory = Path(completed["external_path"].removeprefix("file:"))
    return directory, sorted(path for path in directory.rglob("*") if path.is_file())


def _live_location(target: Target) -> tuple[Path, list[Path]]:
    """Return the directory of the attempt, and the files that a restart needs: logs and state of the newest batch."""
    location = target.chance.choice(target.job.live_locations)
    newest = max((int(path.name) for path in (location / "commits").iterdir() if path.name.isdigit()), default=0)
    files = [location / "metadata", location / "commits" / str(newest)]
    files += [location / "offsets" / str(batch) for batch in (newest, newest + 1)]
    files += [path for path in location.glob("state/*/[0-9]*/**/*.changelog") if path.name.startswith(f"{newest + 1}_")]
    return Path(target.job.record()["work_directory"]), [file for file in files if file.exists()]


def damage(file: Path, chance: random.Random) -> str:
    """Truncate, change or remove the file, and return what was done. Hard links to the file are not changed."""
    content = bytearray(file.read_bytes())
    what = chance.choice(("removed", "truncated", "changed"))
    file.unlink()
    if what == "truncated" or not content:
        file.write_bytes(content[: len(content) // 2])
    elif what == "changed":
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
    return f"{what} {'/'.join(file.parts[-4:])}"
