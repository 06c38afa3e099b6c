"""The `_metadata` of a checkpoint: versioned JSON with a checksum over its canonical body.

    {"magic": "waymark-checkpoint", "version": 2, "sha256": "…", "checkpoint": {all fields of CompletedCheckpoint}}

The checksum protects against damage and careless editing, but not against an attacker, who could compute a new one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import MalformedMessage, from_plain, to_plain
from checkpointing.storage.errors import (
    MetadataForeign,
    MetadataFromNewerVersion,
    MetadataTampered,
    MetadataTruncated,
)
from checkpointing.storage.layout import SHARED, is_safe_location

MAGIC = "waymark-checkpoint"
VERSION = 2

_BEGINNING = b'{"magic":"' + MAGIC.encode() + b'"'


def encode_metadata(checkpoint: CompletedCheckpoint) -> bytes:
    body = to_plain(checkpoint)
    return _canonical({"magic": MAGIC, "version": VERSION, "sha256": _checksum(body), "checkpoint": body}, sort=False)


def decode_metadata(content: bytes, directory: str) -> CompletedCheckpoint:
    """Return the checkpoint in `content`, which was read from `directory`. Its locations are the current ones.

    Raise MetadataForeign, MetadataTruncated, MetadataFromNewerVersion or MetadataTampered if it is not valid.
    """
    body = _checked_body(content, directory)
    try:
        checkpoint = from_plain(CompletedCheckpoint, body)
    except MalformedMessage as error:
        raise MetadataTampered(directory, f"_metadata is not a checkpoint: {error}") from error
    for file in checkpoint.files:
        if not is_safe_location(file.location):
            raise MetadataTampered(directory, f"_metadata names a file outside the snapshot: {file.location!r}")
    return _located(checkpoint, directory)


def _checked_body(content: bytes, directory: str) -> dict[str, Any]:
    if content == b"" or (len(content) < len(_BEGINNING) and _BEGINNING.startswith(content)):
        raise MetadataTruncated(directory, "_metadata is cut off")
    if not content.startswith(_BEGINNING):
        raise MetadataForeign(directory)
    try:
        envelope = json.loads(content)
    except ValueError as error:
        raise MetadataTruncated(directory, f"_metadata is cut off or damaged: {error}") from error
    version = envelope.get("version")
    if isinstance(version, int) and version > VERSION:
        raise MetadataFromNewerVersion(directory, version, VERSION)
    body = envelope.get("checkpoint")
    if version != VERSION or not isinstance(body, dict) or envelope.get("sha256") != _checksum(body):
        raise MetadataTampered(directory, "_metadata does not match its checksum: it was changed or damaged")
    return body


def _located(checkpoint: CompletedCheckpoint, directory: str) -> CompletedCheckpoint:
    shared = None if checkpoint.shared_location is None else f"{directory.rpartition('/')[0]}/{SHARED}"
    return dataclasses.replace(checkpoint, location=directory, shared_location=shared)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(body, sort=True)).hexdigest()


def _canonical(value: dict[str, Any], *, sort: bool) -> bytes:
    return json.dumps(value, sort_keys=sort, separators=(",", ":"), ensure_ascii=True).encode()
