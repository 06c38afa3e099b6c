"""The first checkpoint after a restart does not read files whose checksums an earlier checkpoint has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpointing.checkpoint_location.file_store import known_checksums
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, StateFile, SubtaskMetrics, VertexKind
from checkpointing.storage import FileCheckpointStorage
from checkpointing.storage.checksums import sha256_of

SST, OTHER_SST, ZIP = "state/0/0/SSTs/a.sst", "state/0/1/SSTs/b.sst", "state/0/0/2.zip"


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """Return the location of a snapshot of one query, "words"."""
    storage = FileCheckpointStorage(str(tmp_path / "checkpoints"), "ab" * 16)
    location = storage.initialize_location(1, CheckpointKind.CHECKPOINT, None)
    files = []
    for path in (SST, OTHER_SST, ZIP):
        place = Path(location.directory, "words", path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"the content of {path}")
        files.append(StateFile(path, f"chk-1/words/{path}", place.stat().st_size, sha256_of(place)))
    state = SubtaskState(0, SubtaskMetrics(), tuple(files), 1)
    operators = (OperatorState("b" * 32, "count", VertexKind.STATEFUL, "words", 1, (state,)),)
    properties = CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION)
    checkpoint = CompletedCheckpoint(
        "ab" * 16, "job", "w:main", 1, properties, 1, 2, operators, {"words": 3}, location.directory, None
    )  # fmt: skip
    storage.write_metadata(checkpoint)
    return location.directory


@pytest.fixture
def live(tmp_path: Path, snapshot: str) -> Path:
    """Return the query's new checkpointLocation, with files linked or copied from the snapshot."""
    live = tmp_path / "live"
    for path in (SST, OTHER_SST, ZIP):
        (live / path).parent.mkdir(parents=True, exist_ok=True)
        if path == SST:
            os.link(Path(snapshot, "words", path), live / path)
        else:
            (live / path).write_bytes(Path(snapshot, "words", path).read_bytes())
    return live


def test_restored_files_have_known_checksums_linked_or_copied(snapshot: str, live: Path) -> None:
    checksums = known_checksums(snapshot, {"words": live})

    for path in (SST, OTHER_SST):
        assert checksums.known(live / path) == sha256_of(Path(snapshot, "words", path))


def test_rewritable_files_have_no_known_checksum(snapshot: str, live: Path) -> None:
    assert known_checksums(snapshot, {"words": live}).known(live / ZIP) is None


def test_a_changed_or_deleted_file_has_no_known_checksum(snapshot: str, live: Path) -> None:
    (live / SST).unlink()
    (live / OTHER_SST).write_text("another size")

    checksums = known_checksums(snapshot, {"words": live})

    assert checksums.known(live / OTHER_SST) is None


def test_removed_query_has_no_known_checksums(snapshot: str, live: Path) -> None:
    assert known_checksums(snapshot, {"others": live}).known(live / SST) is None


def test_an_unreadable_snapshot_only_takes_more_time(snapshot: str, live: Path) -> None:
    Path(snapshot, "_metadata").write_text("{")

    assert known_checksums(snapshot, {"words": live}).known(live / SST) is None
    assert known_checksums(None, {"words": live}).known(live / SST) is None
