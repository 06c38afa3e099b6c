"""A directory in which batches appear and disappear as a whole, and its fence. `files` shows its layout."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from checkpointing.durable_files import sync
from checkpointing.model.messages import from_plain, to_plain
from checkpointing.sinks.context import FencedOut, OutputTaken, SinkContext
from checkpointing.sinks.lineage import Lineage, moves

BATCH = "waymark_batch"
CONTROL = ".waymark"
_MARKER = ".waymark-batch"  # does not end like a data file, because some readers select files by their ending
_BATCH_DIRECTORY = re.compile(rf"{BATCH}=(\d+)")


class SinkDirectoryTaken(OutputTaken):
    """The directory has the output of another query, or of a job that this one did not continue from."""


@dataclass(frozen=True)
class Fence:
    """The writer that may publish. `settled`: the directory contains exactly the batches of the writer's lineage.

    `former_jobs` wrote here before another job continued from their state. `timelines` are all that ever wrote here.
    """

    query: str
    job_id: str
    attempt: int
    timeline: str
    settled: bool
    former_jobs: tuple[str, ...] = ()
    timelines: tuple[str, ...] = ()


class OutputDirectory:
    """The output directory with its hidden part. Every change that readers see is made under the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._control = path / CONTROL

    def claim(self, job: SinkContext, query: str) -> None:
        """Make this attempt the writer, and move batches so that the directory matches its state.

        Raise FencedOut or SinkDirectoryTaken. After a crash in between, the older attempts are fenced off, and the next
        claim finishes the moves.
        """
        (self._control / "aside").mkdir(parents=True, exist_ok=True)
        lineage = job.lineage(query)
        with self._locked():
            former = self._fence()
            fence = _next_fence(self.path, former, job, query, lineage)
            self._write_fence(fence)
            if not fence.settled:
                self._settle(lineage)
                self._write_fence(replace(fence, settled=True))
        for leftover in (self._control / "aside").iterdir():
            if _attempt_of(leftover) < job.attempt:
                shutil.rmtree(leftover, ignore_errors=True)

    def check(self, job: SinkContext) -> None:
        """Raise FencedOut if the claim was lost."""
        fence = self._fence()
        if fence is None or (fence.job_id, fence.attempt) != (job.job_id, job.attempt):
            whom = "nobody" if fence is None else f"attempt {fence.attempt} of job {fence.job_id}"
            mine = f"attempt {job.attempt} of job {job.job_id}"
            raise FencedOut(f"{mine} may not write to {self.path}: {whom} has claimed it since")

    def has(self, batch: int) -> bool:
        return self._published(batch).exists()

    @contextlib.contextmanager
    def unpublished_path(self, job: SinkContext, batch: int) -> Iterator[Path]:
        """Yield the path where a batch is written before it is published. Remove it afterwards."""
        directory = self._control / "aside" / f"{job.attempt}-{uuid.uuid4().hex}"
        directory.mkdir(parents=True)
        try:
            yield directory / self._published(batch).name
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def publish(self, job: SinkContext, batch: int, unfinished: Path) -> None:
        """Publish a batch with one rename, after all its files are on disk.

        Raise FencedOut if the claim was lost meanwhile.
        """
        (unfinished / "_SUCCESS").unlink(missing_ok=True)
        marker = {"timeline": job.timeline, "job_id": job.job_id, "attempt": job.attempt}
        (unfinished / _MARKER).write_text(json.dumps(marker))
        for directory, _, files in os.walk(unfinished, topdown=False):
            for name in files:
                sync(Path(directory, name))
            sync(Path(directory))
        with self._locked():
            self.check(job)
            unfinished.rename(self._published(batch))
            sync(self.path)

    def _published(self, batch: int) -> Path:
        return self.path / f"{BATCH}={batch}"

    def _settle(self, lineage: Lineage) -> None:
        """Move batches according to the lineage.

        The result depends only on the files, so it may be interrupted and repeated.
        """
        ends = {span.timeline: span.to for span in moves((), lineage).back}
        abandoned = self._control / "abandoned"
        for directory in list(self.path.iterdir()):
            batch = _batch_of(directory)
            if batch is None:
                continue
            timeline = _timeline_of(directory)
            if batch > ends.get(timeline, -1):
                _move(directory, abandoned / quote(timeline, safe="") / directory.name)
        for timeline, end in ends.items():
            for directory in _entries(abandoned / quote(timeline, safe="")):
                batch = _batch_of(directory)
                if batch is not None and batch <= end:
                    _move(directory, self.path / directory.name)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._control / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _fence(self) -> Fence | None:
        try:
            return from_plain(Fence, json.loads((self._control / "fence").read_text()))
        except FileNotFoundError:
            return None

    def _write_fence(self, fence: Fence) -> None:
        fresh = self._control / "fence.new"
        fresh.write_text(json.dumps(to_plain(fence)))
        sync(fresh)
        fresh.rename(self._control / "fence")
        sync(self._control)


def _next_fence(path: Path, former: Fence | None, job: SinkContext, query: str, lineage: Lineage) -> Fence:
    """Return the fence with this attempt as its writer. Raise FencedOut or SinkDirectoryTaken if it may not write."""
    mine = Fence(query, job.job_id, job.attempt, job.timeline, settled=False, timelines=(job.timeline,))
    if former is None:
        return mine
    if former.query != query:
        raise SinkDirectoryTaken(
            f"{path} holds the output of query {former.query!r}: give query {query!r} another directory"
        )
    if former.job_id == job.job_id:
        if job.attempt < former.attempt:
            raise FencedOut(f"attempt {job.attempt} may not write to {path}: attempt {former.attempt} has claimed it")
        former_jobs = former.former_jobs
    elif job.job_id in former.former_jobs:
        raise FencedOut(
            f"job {job.job_id} may not write to {path}: job {former.job_id}, started from its state, has claimed it"
        )
    elif not any(segment.timeline in former.timelines for segment in lineage):
        raise SinkDirectoryTaken(
            f"{path} holds the output of job {former.job_id}: start job {job.job_id} from a snapshot of "
            f"job {former.job_id}, or give it another directory"
        )
    else:
        former_jobs = (*former.former_jobs, former.job_id)
    return replace(
        mine,
        settled=former.settled and former.timeline == job.timeline,
        former_jobs=former_jobs,
        timelines=tuple(dict.fromkeys((*former.timelines, job.timeline))),
    )


def _batch_of(directory: Path) -> int | None:
    found = _BATCH_DIRECTORY.fullmatch(directory.name)
    return int(found[1]) if found else None


def _timeline_of(directory: Path) -> str:
    return str(json.loads((directory / _MARKER).read_text())["timeline"])


def _attempt_of(leftover: Path) -> int:
    number = leftover.name.partition("-")[0]
    return int(number) if number.isdigit() else -1


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    sync(target.parent)
    sync(source.parent)
