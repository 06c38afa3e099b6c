"""Uploads as a Spark job: how they are distributed, what ends them, and what is reported."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checkpointing.clock import SystemClock
from checkpointing.spark.executor_uploads import ExecutorUploads, shares
from checkpointing.spark.uploads import Upload, UploadFailed
from tests.storage_servers import StorageServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NEVER: Callable[[], bool] = lambda: False  # noqa: E731


def upload(link: Path, location: str, size: int | None = None) -> Upload:
    return Upload(link.name, str(link), size or link.stat().st_size, location, by_content=True)


def test_tasks_get_about_the_same_and_none_gets_much() -> None:
    some = [Upload(str(number), "", size << 20, "", by_content=False) for number, size in enumerate([50, 40, 9, 8, 1])]
    two = [sorted(each.size >> 20 for each in share) for share in shares(some, 2)]
    assert two == [[50], [40], [9], [1, 8]], "108 MB are more than two tasks' worth"
    assert [len(share) for share in shares(some, 8)] == [1, 1, 1, 1, 1], "no task without a file"


@pytest.mark.nightly
def test_a_file_that_executors_cannot_see_ends_the_upload_with_their_message(
    spark: Any, tmp_path: Path, s3: StorageServer, admitted: Callable[[StorageServer], None]
) -> None:
    admitted(s3)
    uploads = ExecutorUploads(spark.sparkContext, 0, SystemClock())
    with pytest.raises(UploadFailed, match=r"FileNotFoundError: .*gone"):
        uploads.bring([upload(tmp_path / "gone", f"{s3.root}/shared", 7)], "an upload", NEVER)
    (tmp_path / "short").write_bytes(b"short")
    with pytest.raises(UploadFailed, match="short has 5 bytes instead of 7"):
        uploads.bring([upload(tmp_path / "short", f"{s3.root}/shared", 7)], "an upload", NEVER)


def test_upload_to_a_local_disk_of_an_executor_is_detected(spark: Any, tmp_path: Path) -> None:
    """A path that only executors see simulates a server that only executors can reach."""
    there = tmp_path / "there"
    there.write_bytes(b"content")
    uploads = ExecutorUploads(spark.sparkContext, 0, SystemClock())
    brought = uploads.bring([upload(there, str(tmp_path / "pool"))], "an upload", NEVER)
    assert [Path(each.location).name for each in brought] == [hashlib.sha256(b"content").hexdigest()]
    (tmp_path / "pool" / Path(brought[0].location).name).unlink()
    known = Upload(
        "there", str(there), 7, str(tmp_path / "pool"), by_content=True, there=frozenset([brought[0].checksum])
    )
    with pytest.raises(UploadFailed, match="their storage differs"):
        uploads.bring([known], "an upload", NEVER)


def test_a_batch_delays_the_upload_and_an_aborted_checkpoint_ends_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., object]
) -> None:
    def held(share: Any) -> Any:
        import time

        own = list(share)
        (tmp_path / f"{own[0].path}.began").touch()
        while not (tmp_path / f"{own[0].path}.may-end").exists():
            time.sleep(0.05)
        return []

    def began() -> list[str]:
        return [path.stem for path in tmp_path.glob("*.began")]

    monkeypatch.setattr("checkpointing.spark.executor_uploads.upload_share", held)
    big = [Upload(str(number), "", 32 << 20, str(tmp_path), by_content=True) for number in range(6)]
    over, uploads = threading.Event(), ExecutorUploads(spark.sparkContext, 0, SystemClock())
    with ThreadPoolExecutor(2) as threads:
        uploading = threads.submit(uploads.bring, big, "held", over.is_set)
        eventually("both processors are taken", lambda: len(began()) == 2)
        batch = threads.submit(lambda: spark.sparkContext.parallelize(range(4), 4).sum())
        store = spark.sparkContext.statusTracker()
        eventually("the batch's job", lambda: len(store.getActiveJobsIds()) == 2)
        (tmp_path / f"{began()[0]}.may-end").touch()
        assert batch.result(60) == 6, "four of the upload's tasks had been waiting for longer"
        over.set()
        with pytest.raises(UploadFailed, match="cancel"):
            uploading.result(60)
    assert len(began()) < 6


@pytest.mark.nightly
def test_an_upload_without_a_free_processor_is_aborted(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    def held(numbers: Any) -> Any:
        import time

        (tmp_path / f"{uuid.uuid4()}.began").touch()
        while not (tmp_path / "may-end").exists():
            time.sleep(0.05)
        return numbers

    (tmp_path / "link").write_bytes(b"content")
    impatient = ExecutorUploads(spark.sparkContext, 0, SystemClock(), patience_s=0.5)
    with ThreadPoolExecutor(1) as threads:
        batch = threads.submit(lambda: spark.sparkContext.parallelize(range(4), 4).mapPartitions(held).sum())
        try:
            eventually("both processors are taken", lambda: len(list(tmp_path.glob("*.began"))) == 2)
            with pytest.raises(UploadFailed, match=r"no processor core was free for the upload within 0\.5 s"):
                impatient.bring([upload(tmp_path / "link", str(tmp_path / "pool"))], "an upload", NEVER)
        finally:
            (tmp_path / "may-end").touch()
        assert batch.result(60) == 6
