"""The manifest has the channels between queries. Older manifests without channels can be read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import Channel, ChannelKind, CheckpointKind
from checkpointing.storage import read_metadata
from checkpointing.storage.metadata import encode_metadata


def checkpoint(directory: Path) -> CompletedCheckpoint:
    properties = CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION)
    return CompletedCheckpoint(
        "ab" * 16, "words", "w:main", 7, properties, 1, 2, (), {"clean": 4, "count": 3}, str(directory), None
    )


def test_channels_are_read_as_they_were_written(tmp_path: Path) -> None:
    channels = (
        Channel("clean", "count", ChannelKind.FILES, "/mid", 0, '{"logOffset":3}'),
        Channel("clean", "keep", ChannelKind.NAMED, ""),
    )
    (tmp_path / "_metadata").write_bytes(encode_metadata(replace(checkpoint(tmp_path), channels=channels)))
    assert read_metadata(str(tmp_path)).channels == channels


def test_a_manifest_from_before_there_were_channels_is_read(tmp_path: Path) -> None:
    envelope = json.loads(encode_metadata(checkpoint(tmp_path)))
    del envelope["checkpoint"]["channels"]
    canonical = json.dumps(envelope["checkpoint"], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    envelope["sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    (tmp_path / "_metadata").write_text(json.dumps(envelope, separators=(",", ":")))
    assert read_metadata(str(tmp_path)) == checkpoint(tmp_path)
