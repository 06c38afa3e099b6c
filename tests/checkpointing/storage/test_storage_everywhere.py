"""Checkpoints, savepoints, their verification, sweeping and disposal on every kind of storage."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import CheckpointKind, StateFile
from checkpointing.storage import (
    FileCheckpointStorage,
    MetadataMissing,
    OutsideSavepointRoots,
    SavepointRoots,
    SnapshotIncomplete,
    dispose_savepoint,
    is_local,
    local_copy,
    read_metadata,
    state_file_path,
    verify,
)
from tests.checkpointing.storage.conftest import Place
from tests.checkpointing.storage.test_checkpoint_storage import JOB_ID, completed

PRIVATE, SHARED = b"private", b"shared"


# The kinds of storage that a location can open.
pytestmark = pytest.mark.parametrize("place", ["local", "memory", "s3", "ftp"], indirect=True)


@pytest.fixture
def storage(place: Place) -> FileCheckpointStorage:
    return FileCheckpointStorage(f"{place.root}/cp", JOB_ID, files=place.files)


def written(storage: FileCheckpointStorage, place: Place, checkpoint_id: int) -> CompletedCheckpoint:
    """Write a complete checkpoint with a private and a shared file."""
    location = storage.initialize_location(checkpoint_id, CheckpointKind.CHECKPOINT, None)
    digest = hashlib.sha256(SHARED).hexdigest()
    files = (
        state_file(f"chk-{checkpoint_id}/q/1.delta", PRIVATE),
        StateFile("state/0/1.sst", f"shared/{digest}", len(SHARED), digest, shared=True),
    )
    for file, content in zip(files, (PRIVATE, SHARED), strict=True):
        place.files.make_directory(f"{storage.job_directory}/{file.location}".rpartition("/")[0])
        place.files.write_durably(f"{storage.job_directory}/{file.location}", content)
    checkpoint = completed(location, files, CheckpointKind.CHECKPOINT, checkpoint_id)
    storage.write_metadata(checkpoint)
    return checkpoint


def state_file(location: str, content: bytes) -> StateFile:
    return StateFile("state/0/1.delta", location, len(content), hashlib.sha256(content).hexdigest())


def test_a_checkpoint_is_written_verified_and_discarded(place: Place, storage: FileCheckpointStorage) -> None:
    first, second = written(storage, place, 7), written(storage, place, 8)
    assert storage.read_metadata(first.location) == first
    assert verify(first.location, deep=True, files=place.files) == first
    with pytest.raises(FileExistsError):
        storage.initialize_location(7, CheckpointKind.CHECKPOINT, None)
    storage.discard_location(CheckpointLocation(first.location, first.shared_location))
    with pytest.raises(MetadataMissing):
        storage.read_metadata(first.location)
    assert verify(second.location, deep=True, files=place.files) == second, "the pool stays"
    storage.discard_location(CheckpointLocation(second.location, second.shared_location))
    storage.discard_shared([file for file in second.files if file.shared])
    storage.remove_empty_directories()
    assert list(place.files.names(storage.job_directory)) == []


def test_a_missing_cut_off_or_changed_file_is_named(place: Place, storage: FileCheckpointStorage) -> None:
    checkpoint = written(storage, place, 7)
    path = state_file_path(checkpoint, checkpoint.files[0])
    place.files.write_durably(path, b"privatE")
    verify(checkpoint.location, files=place.files)
    with pytest.raises(SnapshotIncomplete, match=r"chk-7/q/1\.delta differs from what was saved"):
        verify(checkpoint.location, deep=True, files=place.files)
    place.files.write_durably(path, b"priv")
    with pytest.raises(SnapshotIncomplete, match="has 4 bytes instead of 7"):
        verify(checkpoint.location, files=place.files)
    place.files.remove_file(path)
    with pytest.raises(SnapshotIncomplete, match="is missing"):
        storage.write_metadata(checkpoint)


def test_sweep_removes_leftovers_of_crashes_only(place: Place, storage: FileCheckpointStorage) -> None:
    retained = written(storage, place, 7)
    storage.initialize_location(8, CheckpointKind.CHECKPOINT, None)
    place.files.write_durably(f"{storage.job_directory}/chk-8/half", b"x")
    place.files.write_durably(f"{storage.job_directory}/shared/orphan", b"x")
    swept = storage.sweep([retained], [], lambda: True, first_id=1)
    assert (swept.checkpoint_ids, swept.shared_files) == ((8,), ("orphan",))
    assert verify(retained.location, deep=True, files=place.files) == retained


def test_a_snapshot_is_brought_to_this_machine_and_checked_on_the_way(
    place: Place, storage: FileCheckpointStorage, tmp_path: Path
) -> None:
    checkpoint = written(storage, place, 7)
    copy = local_copy(checkpoint, tmp_path / "restored")
    if is_local(checkpoint.location):
        assert copy is checkpoint
        return
    assert verify(str(tmp_path / "restored" / "chk-7"), deep=True) == copy
    place.files.write_durably(state_file_path(checkpoint, checkpoint.files[1]), b"shareD")
    with pytest.raises(SnapshotIncomplete, match="differs from what was saved"):
        local_copy(checkpoint, tmp_path / "again")
    place.files.remove_file(state_file_path(checkpoint, checkpoint.files[1]))
    with pytest.raises(SnapshotIncomplete, match="is missing"):
        local_copy(checkpoint, tmp_path / "once more")


def test_a_savepoint_is_taken_and_disposed_of_below_the_roots_only(place: Place) -> None:
    roots = SavepointRoots([f"{place.root}/sp"])
    storage = FileCheckpointStorage(None, JOB_ID, savepoint_roots=roots, files=place.files)
    with pytest.raises(OutsideSavepointRoots):
        storage.initialize_location(1, CheckpointKind.SAVEPOINT, f"{place.root}/sp2")
    location = storage.initialize_location(1, CheckpointKind.SAVEPOINT, f"{place.root}/sp/team/")
    assert location.directory.startswith(f"{place.root}/sp/team/savepoint-{JOB_ID[:6]}-")
    place.files.make_directory(f"{location.directory}/q")
    place.files.write_durably(f"{location.directory}/q/1.delta", PRIVATE)
    savepoint = completed(location, (state_file("q/1.delta", PRIVATE),), CheckpointKind.SAVEPOINT, 1)
    storage.write_metadata(savepoint)
    assert read_metadata(location.directory, place.files) == savepoint
    with pytest.raises(OutsideSavepointRoots):
        dispose_savepoint(location.directory, SavepointRoots([f"{place.root}/other"]), place.files)
    dispose_savepoint(location.directory, roots, place.files)
    assert list(place.files.names(f"{place.root}/sp/team")) == []
