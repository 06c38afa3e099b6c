"""How a deleted snapshot is distinguished from an unavailable storage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import CheckpointKind, StateFile
from checkpointing.storage import FileCheckpointStorage, MetadataMissing, MetadataTruncated, verify
from checkpointing.storage.errors import StateFileMissing, StorageUnreachable
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.reachability import read_reachable
from checkpointing.storage.verification import read_metadata
from tests.checkpointing.storage.conftest import Place
from tests.checkpointing.storage.test_checkpoint_storage import JOB_ID, completed

JOB = f"cp/{JOB_ID}"
CONTENT = b"state"
verify_whole = partial(read_reachable, read=partial(verify, deep=True))


def complete(place: Place, checkpoint_id: int) -> CompletedCheckpoint:
    """Return a complete checkpoint with a private file, and a file that all checkpoints share."""
    storage = FileCheckpointStorage(f"{place.root}/cp", JOB_ID, files=place.files)
    location = storage.initialize_location(checkpoint_id, CheckpointKind.CHECKPOINT, None)
    names = (f"chk-{checkpoint_id}/q/1.delta", "shared/" + "e" * 64)
    for name in names:
        place.files.make_directory(f"{place.root}/{JOB}/{name}".rpartition("/")[0])
        place.files.write_durably(f"{place.root}/{JOB}/{name}", CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    files = tuple(StateFile("state/0/1.delta", name, len(CONTENT), digest, name.startswith("shared")) for name in names)
    checkpoint = completed(location, files, CheckpointKind.CHECKPOINT, checkpoint_id)
    storage.write_metadata(checkpoint)
    return checkpoint


@pytest.fixture
def opened(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Open all locations with the files of `place`."""
    for module in ("reachability", "verification"):
        monkeypatch.setattr(f"checkpointing.storage.{module}.files_for", lambda _: place.files)
    return place


def test_a_complete_snapshot_is_read(opened: Place) -> None:
    checkpoint = complete(opened, 1)
    assert verify_whole(checkpoint.location).checkpoint_id == 1
    assert read_reachable(checkpoint.location).checkpoint_id == 1


def test_deleted_checkpoint_among_others_is_missing(opened: Place) -> None:
    first, second = complete(opened, 1), complete(opened, 2)
    opened.files.remove_tree(second.location)
    with pytest.raises(MetadataMissing):
        verify_whole(second.location)
    assert verify_whole(first.location).checkpoint_id == 1


def test_a_deleted_file_of_a_reachable_snapshot_is_reported_as_missing(opened: Place) -> None:
    checkpoint = complete(opened, 1)
    opened.files.remove_file(f"{opened.root}/{JOB}/chk-1/q/1.delta")
    with pytest.raises(StateFileMissing, match=r"chk-1/q/1\.delta is missing"):
        verify_whole(checkpoint.location)


@pytest.mark.parametrize("place", ["local", "fsspec local", "s3", "ftp"], indirect=True)
def test_an_empty_path_may_mean_that_the_storage_is_unreachable(opened: Place) -> None:
    checkpoint = complete(opened, 1)
    opened.files.remove_tree(f"{opened.root}/{JOB}")
    with pytest.raises(StorageUnreachable, match=f"{JOB_ID} is missing or holds nothing at all"):
        verify_whole(checkpoint.location)


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_the_memory_of_this_process_is_always_reachable(opened: Place) -> None:
    checkpoint = complete(opened, 1)
    opened.files.remove_tree(f"{opened.root}/{JOB}")
    with pytest.raises(MetadataMissing):
        verify_whole(checkpoint.location)


@pytest.mark.parametrize("mount_point", ["is missing", "is empty"])
def test_a_file_system_that_is_not_mounted_is_unreachable(tmp_path: Path, mount_point: str) -> None:
    checkpoint = _completed_locally(tmp_path)
    root = tmp_path / "cp"
    root.rename(tmp_path / "elsewhere")
    if mount_point == "is empty":
        root.mkdir()
    with pytest.raises(StorageUnreachable, match="may not be mounted"):
        verify_whole(checkpoint.location)
    with pytest.raises(StorageUnreachable):
        read_reachable(f"{checkpoint.location}/_metadata")


@pytest.mark.parametrize("mount_point", ["is missing", "is empty"])
def test_nothing_is_written_into_a_mount_point_without_its_storage(tmp_path: Path, mount_point: str) -> None:
    """A new directory there would make the retained checkpoints look deleted."""
    checkpoint = _completed_locally(tmp_path)
    root = tmp_path / "cp"
    storage = FileCheckpointStorage(str(root), JOB_ID, retained=lambda: (checkpoint,))
    storage.initialize_location(2, CheckpointKind.CHECKPOINT, None)
    elsewhere = root.rename(tmp_path / "elsewhere")
    if mount_point == "is empty":
        root.mkdir()
    with pytest.raises(StorageUnreachable, match="may not be mounted"):
        storage.initialize_location(3, CheckpointKind.CHECKPOINT, None)
    assert list(root.glob("*")) == []
    with pytest.raises(StorageUnreachable):
        verify_whole(checkpoint.location)

    if mount_point == "is empty":
        root.rmdir()
    elsewhere.rename(root)
    storage.initialize_location(3, CheckpointKind.CHECKPOINT, None)
    assert verify_whole(checkpoint.location).checkpoint_id == 1


def test_files_in_an_empty_mount_point_do_not_make_a_checkpoint_missing(tmp_path: Path) -> None:
    """The driver's upload began while the storage was available, and creates missing directories."""
    checkpoint = _completed_locally(tmp_path)
    root = tmp_path / "cp"
    root.rename(tmp_path / "elsewhere")
    (source := tmp_path / "1.delta").write_bytes(CONTENT)
    for path in ("chk-2/q/1.delta", "shared/" + "f" * 64):
        LocalFiles().put(source, f"{root}/{JOB_ID}/{path}")
    with pytest.raises(StorageUnreachable, match="has no taskowned/; its storage may not be mounted"):
        verify_whole(checkpoint.location)
    with pytest.raises(StorageUnreachable):
        FileCheckpointStorage(str(root), JOB_ID, retained=lambda: (checkpoint,)).initialize_location(
            3, CheckpointKind.CHECKPOINT, None
        )


class Unmounted(LocalFiles):
    """Local files whose storage becomes unavailable right after a directory was listed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, path: str) -> Sequence[str]:
        found = super().names(path)
        self._root.rename(self._root.with_name("elsewhere"))
        return found


def test_storage_that_becomes_unreachable_while_a_checkpoint_begins_gets_no_directory(tmp_path: Path) -> None:
    checkpoint = _completed_locally(tmp_path)
    root = tmp_path / "cp"
    storage = FileCheckpointStorage(str(root), JOB_ID, files=Unmounted(root), retained=lambda: (checkpoint,))
    with pytest.raises(StorageUnreachable, match="no longer exists; its storage may not be mounted"):
        storage.initialize_location(2, CheckpointKind.CHECKPOINT, None)
    assert not root.exists()


def test_no_checkpoint_completes_in_a_directory_created_in_an_empty_mount_point(tmp_path: Path) -> None:
    checkpoint = _completed_locally(tmp_path)
    root = tmp_path / "cp"
    storage = FileCheckpointStorage(str(root), JOB_ID, retained=lambda: (checkpoint,))
    location = storage.initialize_location(2, CheckpointKind.CHECKPOINT, None)
    root.rename(tmp_path / "elsewhere")
    (source := tmp_path / "1.delta").write_bytes(CONTENT)
    LocalFiles().put(source, f"{location.directory}/q/1.delta")
    file = StateFile("state/0/1.delta", "chk-2/q/1.delta", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), False)
    with pytest.raises(StorageUnreachable, match="has no taskowned/; its storage may not be mounted"):
        storage.write_metadata(completed(location, (file,), CheckpointKind.CHECKPOINT, 2))


def test_a_retained_checkpoint_of_an_ended_job_can_be_missing(tmp_path: Path) -> None:
    first = _completed_locally(tmp_path)
    storage = FileCheckpointStorage(str(tmp_path / "cp"), JOB_ID)
    storage.initialize_location(2, CheckpointKind.CHECKPOINT, None)
    storage.remove_empty_directories()
    LocalFiles().remove_tree(first.location)
    with pytest.raises(MetadataMissing):
        verify_whole(first.location)


def test_the_first_checkpoint_of_a_job_creates_its_directory(tmp_path: Path) -> None:
    """The directory is also created if the job was restored from a snapshot elsewhere."""
    savepoint = _completed_locally(tmp_path / "other")
    storage = FileCheckpointStorage(str(tmp_path / "cp"), JOB_ID, retained=lambda: (savepoint,))
    assert Path(storage.initialize_location(1, CheckpointKind.CHECKPOINT, None).directory).is_dir()


@pytest.mark.parametrize("first_seen_again", ["before the look beside it", "after it"])
def test_storage_that_returns_during_the_check_is_not_a_loss(tmp_path: Path, first_seen_again: str) -> None:
    checkpoint = _completed_locally(tmp_path)
    reads = []

    def read(directory: str) -> CompletedCheckpoint:
        reads.append(directory)
        if len(reads) == 1:
            raise MetadataMissing(directory)
        return read_metadata(directory)

    if first_seen_again == "after it":
        away = (tmp_path / "cp").rename(tmp_path / "away")
        with pytest.raises(StorageUnreachable):
            read_reachable(checkpoint.location, read)
        away.rename(tmp_path / "cp")
    assert read_reachable(checkpoint.location, read).checkpoint_id == 1
    assert len(reads) == 2


def test_a_damaged_snapshot_is_not_a_missing_one(tmp_path: Path) -> None:
    checkpoint = _completed_locally(tmp_path)
    metadata = Path(checkpoint.location) / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-10])
    with pytest.raises(MetadataTruncated):
        verify_whole(checkpoint.location)


def test_an_error_of_the_storage_is_passed_on(tmp_path: Path) -> None:
    def read(directory: str) -> CompletedCheckpoint:
        raise StorageUnreachable(f"{directory}: the storage cannot be reached")

    with pytest.raises(StorageUnreachable, match="cannot be reached"):
        read_reachable(str(tmp_path), read)


def _completed_locally(directory: Path) -> CompletedCheckpoint:
    return complete(Place(LocalFiles(), str(directory)), 1)
