"""A real Spark job with snapshots in remote storage is killed and restored, without counting a row twice."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import CheckpointKind, DriverState
from checkpointing.storage import FileCheckpointStorage, files_for, local_copy, verify
from checkpointing.storage.locations import JOB_MANAGER_MEMORY
from tests.storage_servers import StorageServer

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def elsewhere(s3: StorageServer, admitted: Callable[[StorageServer], None], job_manager: Any) -> str:
    """Let the job manager store snapshots on an S3 server. The keys are in its and its drivers' environment."""
    admitted(s3)
    root = f"{s3.root}/{uuid.uuid4().hex}"
    job_manager.storage = FileCheckpointStorage(f"{root}/checkpoints", job_manager.job_id)
    job_manager.savepoints = f"{root}/savepoints"
    return root


class Feeder:
    def __init__(self, words: Any) -> None:
        self.expected: Counter[str] = Counter()
        self._words = words

    def feed(self, *numbers: int) -> None:
        for number in numbers:
            chance = random.Random(number)
            some = [f"w{chance.randrange(40)}" for _ in range(300)]
            self.expected.update(some)
            self._words.write(f"f{number}", some)

    def all_counted(self) -> bool:
        return bool(self._words.counts() == self.expected)

    def rewind_the_sink(self, batches: int) -> None:
        for file in sorted(self._words.output.glob("*.json"))[batches:]:
            file.unlink()


def test_a_job_with_its_storage_on_s3_is_killed_restored_stopped_and_restored_again(
    job_manager: Any, drivers: Any, words: Any, eventually: Any, elsewhere: str, tmp_path: Path
) -> None:
    feeder = Feeder(words)
    first = drivers.start(job_manager, "wordcount:wordcount", words.arguments)
    job_manager.await_state(1, DriverState.RUNNING)
    feeder.feed(1, 2)
    eventually("two batches", feeder.all_counted)
    job_manager.complete(1)
    feeder.feed(3)
    eventually("the third", feeder.all_counted)
    checkpoint = job_manager.complete(2)
    assert checkpoint.location == f"{elsewhere}/checkpoints/{job_manager.job_id}/chk-2"
    assert verify(checkpoint.location, deep=True) == checkpoint
    feeder.feed(4)
    eventually("a batch after the checkpoint", feeder.all_counted)
    first.kill()

    feeder.rewind_the_sink(3)
    second = drivers.start(job_manager, "wordcount:wordcount", words.arguments, attempt=2, restore=checkpoint)
    feeder.feed(5)
    eventually("all words", feeder.all_counted)
    assert not (second.work / "restored").exists(), "what was brought here is gone once the queries have it"

    savepoint: CompletedCheckpoint = job_manager.complete(3, CheckpointKind.SYNC_SAVEPOINT)
    assert savepoint.location.startswith(f"{elsewhere}/savepoints/savepoint-")
    second.kill()
    assert "AWS" not in second.log
    drivers.start(job_manager, "wordcount:wordcount", words.arguments, attempt=3, restore=savepoint)
    feeder.feed(6)
    eventually("all words after the savepoint", feeder.all_counted)
    assert_the_job_managers_memory_can_take_over(job_manager, eventually, tmp_path)


def assert_the_job_managers_memory_can_take_over(job_manager: Any, eventually: Any, tmp_path: Path) -> None:
    """Store the next checkpoint in the job manager's memory: acknowledgements contain its files. Then write a copy."""
    job_manager.storage = FileCheckpointStorage(JOB_MANAGER_MEMORY, job_manager.job_id)
    take = job_manager.trigger(4)
    eventually("checkpoint 4", lambda: len(take.acknowledgements) == 4)
    assert all(set(each.contents) == {file.location for file in each.files} for each in take.acknowledgements)
    take.acknowledgements[:] = [job_manager.storage.keep_contents(each) for each in take.acknowledgements]
    checkpoint = job_manager.finish(take)
    assert verify(local_copy(checkpoint, tmp_path / "written-out").location, deep=True).batches == checkpoint.batches
    files_for(checkpoint.location).remove_tree(job_manager.storage.job_directory)
