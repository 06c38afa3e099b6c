"""What may happen to a job. Each fault is one function; it returns what must not be restored from afterwards."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import Job, JobManagers
from tests.waiting import eventually


@dataclass(frozen=True)
class Target:
    managers: JobManagers
    job: Job
    poison: Path
    chance: random.Random


@dataclass(frozen=True)
class Damage:
    """`restarts`: the fault ends the attempt. `path` is a checkpoint's directory, or an attempt's, that was damaged."""

    restarts: bool = True
    path: Path | None = None
    how: str = ""


Fault = Callable[[Target], Damage]


def driver_is_killed(target: Target) -> Damage:
    """By the machine's end (all of it), or by the kernel that needs memory (its Python, its Java)."""
    match target.chance.choice(("all", "python", "java")):
        case "all":
            target.job.signal_driver(signal.SIGKILL)
        case "python":
            target.job.signal_driver(signal.SIGKILL, whole_group=False)
        case "java":
            os.kill(eventually("a JVM", target.job.java_of_driver), signal.SIGKILL)
    return Damage()


def task_raises(target: Target) -> Damage:
    target.poison.touch()
    eventually("a poisoned row", lambda: not target.poison.exists())
    return Damage()


def leader_is_killed(target: Target) -> Damage:
    target.managers.kill_leader()
    return Damage(restarts=False)


def newest_checkpoint_is_damaged(target: Target) -> Damage:
    """The driver is halted first, so that no newer one comes while this one is damaged."""
    target.job.signal_driver(signal.SIGSTOP)
    completed = eventually("a completed checkpoint", target.job.completed)
    directory = Path(completed["external_path"].removeprefix("file:"))
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    how = damage(target.chance.choice(files), target.chance)
    target.job.signal_driver(signal.SIGKILL)
    return Damage(path=directory, how=how)


def live_location_is_damaged(target: Target) -> Damage:
    """A file that a restart from it needs: of the newest batch's logs or of its state."""
    target.job.signal_driver(signal.SIGSTOP)
    location = target.chance.choice(target.job.live_locations)
    newest = max((int(path.name) for path in (location / "commits").iterdir() if path.name.isdigit()), default=0)
    files = [location / "metadata", location / "commits" / str(newest)]
    files += [location / "offsets" / str(batch) for batch in (newest, newest + 1)]
    files += [path for path in location.glob("state/*/[0-9]*/**/*.changelog") if path.name.startswith(f"{newest + 1}_")]
    how = damage(target.chance.choice([file for file in files if file.exists()]), target.chance)
    work = Path(target.job.record()["work_directory"])
    target.job.signal_driver(signal.SIGKILL)
    return Damage(path=work, how=how)


# Still to come, with drivers on a standalone cluster (spark.master=spark://…): an executor is killed.
FAULTS: tuple[Fault, ...] = (
    driver_is_killed,
    task_raises,
    leader_is_killed,
    newest_checkpoint_is_damaged,
    live_location_is_damaged,
)


def damage(file: Path, chance: random.Random) -> str:
    """Truncate it, change a byte of it or remove it, and say so. Other links to its bytes keep them as they are."""
    content = bytearray(file.read_bytes())
    what = chance.choice(("removed", "truncated", "changed"))
    file.unlink()
    if what == "truncated" or not content:
        file.write_bytes(content[: len(content) // 2])
    elif what == "changed":
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
    return f"{what} {'/'.join(file.parts[-4:])}"
