"""A checkpoint that its storage cannot take is declined with a clear cause. Later checkpoints of the job complete."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.messages import CheckpointKind, TriggerCheckpoint
from checkpointing.storage.locations import JOB_MANAGER_MEMORY
from checkpointing.storage.memory_files import MAX_STATE_SIZE
from tests.checkpointing.spark.test_agent import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.agent.close()


def trigger(bench: Bench, checkpoint_id: int, root: str) -> None:
    directory, shared = f"{root}/chk-{checkpoint_id}", f"{root}/shared"
    bench.agent.trigger(TriggerCheckpoint("s", checkpoint_id, CheckpointKind.CHECKPOINT, 0, 1000, directory, shared))


def is_acknowledged(bench: Bench, checkpoint_id: int) -> Callable[[], bool]:
    return lambda: sum(each[0] == checkpoint_id for each in bench.reports.acknowledged) == 4


def test_a_disk_that_gets_full_declines_only_the_current_checkpoint(
    bench: Bench, small_disk: Path, eventually: Any
) -> None:
    bench.query.run(0, size=100_000)
    trigger(bench, 1, str(small_disk))
    bench.until(eventually, is_acknowledged(bench, 1))
    kept = {path: path.read_bytes() for path in small_disk.rglob("*") if path.is_file()}

    bench.query.run(1, size=2_000_000)
    trigger(bench, 2, str(small_disk))
    bench.until(eventually, lambda: bench.reports.declined)
    assert not bench.agent.is_busy
    [(checkpoint_id, reason, cause)] = bench.reports.declined
    assert (checkpoint_id, reason) == (2, "CHECKPOINT_ASYNC_EXCEPTION")
    assert "Batch 1 of query 'words' cannot be written: " in cause
    assert "the storage is full" in cause

    def only_what_was_kept() -> bool:
        """Return whether the driver has removed its files from the pool. The job manager removes `chk-2`."""
        return {p for p in small_disk.rglob("*") if p.is_file() and "chk-2" not in p.parts} == set(kept)

    bench.until(eventually, only_what_was_kept)
    assert {path: path.read_bytes() for path in kept} == kept

    bench.query.run(2, size=100)
    bench.agent.tick()
    trigger(bench, 3, str(bench.root / "another"))
    bench.until(eventually, is_acknowledged(bench, 3))


def test_state_too_large_for_the_job_managers_memory_is_declined_with_flinks_message(
    bench: Bench, eventually: Any
) -> None:
    memory = f"{JOB_MANAGER_MEMORY}/{uuid.uuid4().hex}"
    bench.query.run(0)
    trigger(bench, 1, memory)
    bench.until(eventually, is_acknowledged(bench, 1))
    assert any(durable.contents for _, durable, _, _ in bench.reports.acknowledged)

    bench.query.run(1, size=MAX_STATE_SIZE + 1)
    trigger(bench, 2, memory)
    bench.until(eventually, lambda: bench.reports.declined)
    assert "Size of the state is larger than the maximum permitted memory-backed state." in bench.reports.declined[0][2]


@pytest.mark.parametrize(
    ("root", "cause"),
    [
        ("nosuch://host/x", "'nosuch' is not supported as storage for snapshots"),
        ("ftp://127.0.0.1:9/x", "the storage cannot be reached"),
    ],
)
def test_a_checkpoint_is_declined_if_its_storage_cannot_be_opened(
    bench: Bench, eventually: Any, root: str, cause: str
) -> None:
    bench.query.run(0)
    trigger(bench, 1, root)
    bench.until(eventually, lambda: bench.reports.declined)
    assert cause in bench.reports.declined[0][2]
    trigger(bench, 2, str(bench.root / "another"))
    bench.until(eventually, is_acknowledged(bench, 2))
