"""Checkpoints and savepoints as local files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, StateFile, SubtaskMetrics, VertexKind
from checkpointing.storage import (
    FileCheckpointStorage,
    MetadataForeign,
    MetadataFromNewerVersion,
    MetadataMissing,
    MetadataTampered,
    MetadataTruncated,
    OutsideSavepointRoots,
    SavepointRoots,
    SnapshotIncomplete,
    StorageError,
    UnsafeLocation,
    dispose_savepoint,
    read_metadata,
    state_file_path,
    verify,
)

JOB_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def storage(tmp_path: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(str(tmp_path / "cp"), JOB_ID)


def put(directory: Path, location: str, content: bytes, *, shared: bool = False) -> StateFile:
    target = directory / location
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return StateFile(f"state/0/{target.name}", location, len(content), hashlib.sha256(content).hexdigest(), shared)


def completed(
    location: CheckpointLocation, files: tuple[StateFile, ...], kind: CheckpointKind, checkpoint_id: int
) -> CompletedCheckpoint:
    metrics = SubtaskMetrics(state_size=7, sync_duration=3)
    subtask = SubtaskState(0, metrics, files, acknowledged_ms=5)
    return CompletedCheckpoint(
        job_id=JOB_ID,
        job_name="wörd count",
        entry_class="w:main",
        checkpoint_id=checkpoint_id,
        properties=CheckpointProperties(kind, RetentionPolicy.RETAIN_ON_CANCELLATION, forced=kind.is_savepoint),
        trigger_timestamp=1,
        completion_timestamp=9,
        operators=(OperatorState("b" * 32, "count", VertexKind.STATEFUL, "q", 1, (subtask,)),),
        batches={"q": 41},
        location=location.directory,
        shared_location=location.shared_directory,
    )


@pytest.fixture
def checkpoint(storage: FileCheckpointStorage) -> CompletedCheckpoint:
    """Return the complete checkpoint 7, with a private and a shared file."""
    location = storage.initialize_location(7, CheckpointKind.CHECKPOINT, None)
    job = Path(storage.job_directory)
    files = (put(job, "chk-7/q/1.delta", b"private"), put(job, "shared/" + "e" * 64, b"shared", shared=True))
    checkpoint = completed(location, files, CheckpointKind.CHECKPOINT, 7)
    storage.write_metadata(checkpoint)
    return checkpoint


@pytest.fixture
def savepoint(storage: FileCheckpointStorage, tmp_path: Path) -> CompletedCheckpoint:
    location = storage.initialize_location(8, CheckpointKind.SAVEPOINT, str(tmp_path / "sp"))
    files = (put(Path(location.directory), "q/1.delta", b"private"),)
    savepoint = completed(location, files, CheckpointKind.SAVEPOINT, 8)
    storage.write_metadata(savepoint)
    return savepoint


def edited(checkpoint: CompletedCheckpoint, change: Callable[[dict[str, Any]], None], *, sign: bool = False) -> str:
    """Apply `change` to the checkpoint's metadata, and return its directory. `sign`: update the checksum."""
    path = Path(checkpoint.location) / "_metadata"
    envelope = json.loads(path.read_bytes())
    change(envelope)
    if sign:
        body = json.dumps(envelope["checkpoint"], sort_keys=True, separators=(",", ":"))
        envelope["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    path.write_text(json.dumps(envelope, separators=(",", ":")))
    return checkpoint.location


def test_the_layout_is_flinks(storage: FileCheckpointStorage, tmp_path: Path) -> None:
    location = storage.initialize_location(3, CheckpointKind.CHECKPOINT, None)
    assert location == CheckpointLocation(f"{tmp_path}/cp/{JOB_ID}/chk-3", f"{tmp_path}/cp/{JOB_ID}/shared")
    assert sorted(path.name for path in (tmp_path / "cp" / JOB_ID).iterdir()) == ["chk-3", "shared", "taskowned"]


def test_conformance_a53_no_directory_before_the_first_snapshot(tmp_path: Path) -> None:
    FileCheckpointStorage(str(tmp_path / "cp"), JOB_ID)
    assert list(tmp_path.iterdir()) == []


def test_a_savepoint_gets_a_directory_of_its_own(storage: FileCheckpointStorage, tmp_path: Path) -> None:
    first, second = (storage.initialize_location(1, CheckpointKind.SAVEPOINT, f"file:{tmp_path}/sp/") for _ in "ab")
    assert first.directory != second.directory
    assert re.fullmatch(rf"{tmp_path}/sp/savepoint-012345-[0-9a-f]{{12}}", first.directory)
    assert first.shared_directory is None
    assert not (tmp_path / "cp").exists()


def test_a_directory_in_the_way_is_refused(storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint) -> None:
    with pytest.raises(FileExistsError):
        storage.initialize_location(7, CheckpointKind.CHECKPOINT, None)
    assert verify(checkpoint.location) == checkpoint


def test_without_a_directory_the_missing_setting_is_named() -> None:
    storage = FileCheckpointStorage(None, JOB_ID)
    with pytest.raises(StorageError, match=r"execution\.checkpointing\.dir"):
        storage.initialize_location(1, CheckpointKind.CHECKPOINT, None)
    with pytest.raises(StorageError, match="no savepoint directory"):
        storage.initialize_location(1, CheckpointKind.SAVEPOINT, None)


def test_written_checkpoint_is_read_back(
    storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint, savepoint: CompletedCheckpoint
) -> None:
    for written in (checkpoint, savepoint):
        assert read_metadata(written.location) == written
        assert storage.read_metadata(f"file://{written.location}/") == written
        assert read_metadata(f"{written.location}/_metadata") == written
        assert verify(written.location, deep=True) == written


def test_nothing_temporary_is_left_beside_the_metadata(checkpoint: CompletedCheckpoint) -> None:
    assert sorted(path.name for path in Path(checkpoint.location).iterdir()) == ["_metadata", "q"]


def test_a_failed_write_leaves_no_metadata(storage: FileCheckpointStorage, savepoint: CompletedCheckpoint) -> None:
    location = storage.initialize_location(9, CheckpointKind.CHECKPOINT, None)
    (Path(location.directory) / "_metadata").mkdir()
    with pytest.raises(OSError, match="directory"):
        storage.write_metadata(completed(location, (), CheckpointKind.CHECKPOINT, 9))
    assert [path.name for path in Path(location.directory).iterdir()] == ["_metadata"]


def test_no_checkpoint_completes_with_a_file_missing(storage: FileCheckpointStorage) -> None:
    location = storage.initialize_location(9, CheckpointKind.CHECKPOINT, None)
    absent = StateFile("x", "shared/" + "0" * 64, 1, "0" * 64, shared=True)
    with pytest.raises(SnapshotIncomplete) as caught:
        storage.write_metadata(completed(location, (absent,), CheckpointKind.CHECKPOINT, 9))
    assert caught.value.file == absent.location
    with pytest.raises(MetadataMissing):
        read_metadata(location.directory)


def test_a_savepoint_is_not_completed_by_a_job_manager_that_no_longer_leads(tmp_path: Path) -> None:
    """The next leader may just be removing incomplete savepoints."""
    leads = [True]
    storage = FileCheckpointStorage(str(tmp_path / "cp"), JOB_ID, owns_pool=lambda: leads[0])
    location = storage.initialize_location(8, CheckpointKind.SAVEPOINT, str(tmp_path / "sp"))
    files = (put(Path(location.directory), "q/1.delta", b"private"),)
    leads[0] = False
    with pytest.raises(StorageError, match="another job manager is the leader"):
        storage.write_metadata(completed(location, files, CheckpointKind.SAVEPOINT, 8))
    assert not (Path(location.directory) / "_metadata").exists()


def test_a_moved_savepoint_is_read_where_it_lies_now(savepoint: CompletedCheckpoint, tmp_path: Path) -> None:
    moved = shutil.move(savepoint.location, tmp_path / "kept for later")
    found = verify(str(moved), deep=True)
    assert found == replace(savepoint, location=str(tmp_path / "kept for later"))
    assert Path(state_file_path(found, found.files[0])).read_bytes() == b"private"


def test_a_moved_job_directory_keeps_its_checkpoints(checkpoint: CompletedCheckpoint, tmp_path: Path) -> None:
    shutil.move(tmp_path / "cp" / JOB_ID, tmp_path / "elsewhere")
    found = verify(str(tmp_path / "elsewhere" / "chk-7"), deep=True)
    assert found.shared_location == f"{tmp_path}/elsewhere/shared"
    contents = [Path(state_file_path(found, file)).read_bytes() for file in found.files]
    assert contents == [b"private", b"shared"]


@pytest.mark.parametrize("directory", ["cp", "nowhere", "file.txt"])
def test_no_metadata_says_so(tmp_path: Path, directory: str) -> None:
    (tmp_path / "cp").mkdir()
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(MetadataMissing, match=rf"{directory}: there is no _metadata"):
        read_metadata(str(tmp_path / directory))


def test_metadata_cut_off_anywhere_is_noticed(savepoint: CompletedCheckpoint) -> None:
    path = Path(savepoint.location) / "_metadata"
    content = path.read_bytes()
    for length in (*range(30), len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(MetadataTruncated):
            read_metadata(savepoint.location)


def test_metadata_of_another_program_is_named_as_such(savepoint: CompletedCheckpoint) -> None:
    (Path(savepoint.location) / "_metadata").write_bytes(bytes.fromhex("4960672d00000004") + b"\x00" * 40)
    with pytest.raises(MetadataForeign, match="not written by Waymark"):
        read_metadata(savepoint.location)


def test_changed_metadata_is_refused(savepoint: CompletedCheckpoint) -> None:
    with pytest.raises(MetadataTampered, match="checksum"):
        read_metadata(edited(savepoint, lambda envelope: envelope["checkpoint"].update(checkpoint_id=9)))


def test_metadata_without_a_field_is_refused(savepoint: CompletedCheckpoint) -> None:
    with pytest.raises(MetadataTampered, match="batches is missing"):
        read_metadata(edited(savepoint, lambda envelope: envelope["checkpoint"].pop("batches"), sign=True))


def test_metadata_of_a_newer_release_says_which_version(savepoint: CompletedCheckpoint) -> None:
    with pytest.raises(MetadataFromNewerVersion, match="version 3, this release reads up to 2"):
        read_metadata(edited(savepoint, lambda envelope: envelope.update(version=3)))


@pytest.mark.parametrize("location", ["../../etc/passwd", "/etc/passwd", "q/../../x", ""])
def test_metadata_that_leads_out_of_the_snapshot_is_refused(savepoint: CompletedCheckpoint, location: str) -> None:
    def point_elsewhere(envelope: dict[str, Any]) -> None:
        envelope["checkpoint"]["operators"][0]["subtasks"][0]["files"][0]["location"] = location

    with pytest.raises(MetadataTampered, match="outside the snapshot"):
        read_metadata(edited(savepoint, point_elsewhere, sign=True))


def test_an_extra_field_of_a_newer_minor_release_does_no_harm(savepoint: CompletedCheckpoint) -> None:
    assert read_metadata(edited(savepoint, lambda envelope: envelope["checkpoint"].update(x=1), sign=True)) == savepoint


def test_verify_names_the_file_that_is_missing_or_of_another_size(checkpoint: CompletedCheckpoint) -> None:
    private, shared = (Path(state_file_path(checkpoint, file)) for file in checkpoint.files)
    private.write_bytes(b"privat")
    with pytest.raises(SnapshotIncomplete, match=r"chk-7/q/1\.delta has 6 bytes instead of 7"):
        verify(checkpoint.location)
    private.write_bytes(b"private")
    shared.unlink()
    with pytest.raises(SnapshotIncomplete, match=r"shared/e{64} is missing") as caught:
        verify(checkpoint.location)
    assert caught.value.file == "shared/" + "e" * 64


def test_only_the_deep_check_reads_the_content(checkpoint: CompletedCheckpoint) -> None:
    Path(state_file_path(checkpoint, checkpoint.files[0])).write_bytes(b"privatE")
    verify(checkpoint.location)
    with pytest.raises(SnapshotIncomplete, match="differs from what was saved"):
        verify(checkpoint.location, deep=True)


def test_discarding_removes_the_own_directory_and_never_the_pool(
    storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint
) -> None:
    location = CheckpointLocation(checkpoint.location, checkpoint.shared_location)
    storage.discard_location(location)
    storage.discard_location(location)  # a second discard does nothing
    assert sorted(path.name for path in Path(storage.job_directory).iterdir()) == ["shared", "taskowned"]
    assert len(list(Path(storage.job_directory, "shared").iterdir())) == 1


@pytest.mark.parametrize("name", ["", "shared", "taskowned", "..", "chk-7/.."])
def test_only_a_snapshots_directory_can_be_discarded(
    storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint, name: str
) -> None:
    with pytest.raises(UnsafeLocation):
        storage.discard_location(CheckpointLocation(f"{storage.job_directory}/{name}", None))
    assert verify(checkpoint.location) == checkpoint


def test_shared_files_are_removed_one_by_one(storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint) -> None:
    shared = checkpoint.files[1]
    gone = replace(shared, location="shared/" + "1" * 64)
    storage.discard_shared([gone, shared])
    assert list(Path(storage.job_directory, "shared").iterdir()) == []


@pytest.mark.parametrize("location", ["chk-7/_metadata", "shared/../chk-7/_metadata", "shared/..", "shared/", "shared"])
def test_only_files_of_the_pool_are_removed_as_shared(
    storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint, location: str
) -> None:
    with pytest.raises(UnsafeLocation):
        storage.discard_shared([checkpoint.files[1], replace(checkpoint.files[1], location=location)])
    assert verify(checkpoint.location) == checkpoint


def test_a_savepoint_is_disposed_of_below_the_roots_only(
    savepoint: CompletedCheckpoint, checkpoint: CompletedCheckpoint, tmp_path: Path
) -> None:
    with pytest.raises(OutsideSavepointRoots):
        dispose_savepoint(savepoint.location, SavepointRoots([str(tmp_path / "other")]))
    with pytest.raises(UnsafeLocation, match="belongs to its job"):
        dispose_savepoint(checkpoint.location, SavepointRoots([str(tmp_path)]))
    with pytest.raises(MetadataMissing):
        dispose_savepoint(str(tmp_path / "sp"), SavepointRoots([str(tmp_path)]))

    dispose_savepoint(savepoint.location, SavepointRoots([str(tmp_path / "sp")]))
    assert list((tmp_path / "sp").iterdir()) == []
    assert verify(checkpoint.location) == checkpoint


def test_a_savepoint_is_written_below_the_roots_only(tmp_path: Path) -> None:
    roots = SavepointRoots([str(tmp_path / "sp")])
    storage = FileCheckpointStorage(None, JOB_ID, savepoint_roots=roots)
    storage.initialize_location(1, CheckpointKind.SAVEPOINT, str(tmp_path / "sp" / "team"))
    with pytest.raises(OutsideSavepointRoots):
        storage.initialize_location(1, CheckpointKind.SAVEPOINT, str(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory_is_an_os_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        FileCheckpointStorage(str(tmp_path / "cp"), JOB_ID).initialize_location(1, CheckpointKind.CHECKPOINT, None)
    tmp_path.chmod(0o700)
