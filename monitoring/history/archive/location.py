"""The archive's directory, WAYMARK_ARCHIVE, on any storage that checkpoints can use.

It contains files such as

    checkpoints/cluster=3/month=2026-08/1f2e…-0.parquet     operators/…     samples/…

In each directory a manifest describes the files for readers without Waymark's database.
"""

from __future__ import annotations

import uuid
from datetime import date
from pathlib import Path

from django.conf import settings

from checkpointing.storage.files import Files
from checkpointing.storage.locations import is_local
from checkpointing.storage.opening import files_for

MANIFEST = "manifest.json"
# The size of the local cache of whole files from remote storage. The oldest files are deleted first.
CACHE_BYTES = 2_000_000_000


def files() -> Files:
    return files_for(settings.ARCHIVE)


def place(path: str) -> str:
    return f"{settings.ARCHIVE}/{path}"


def directory_of(kind: str, cluster_id: int, month: date) -> str:
    return f"{kind}/cluster={cluster_id}/month={month:%Y-%m}"


def here(path: str, sha256: str) -> Path:
    """Return the local path of an archived file, or of a copy that was verified on download. Raises OSError."""
    if is_local(settings.ARCHIVE):
        return Path(place(path))
    copy = Path(settings.VAR_DIR) / "archive-cache" / sha256
    if not copy.exists():
        _bring(path, sha256, copy)
    return copy


def _bring(path: str, sha256: str, copy: Path) -> None:
    _make_room(copy.parent)
    arriving = copy.with_name(f".{uuid.uuid4().hex}")
    try:
        if files().get(place(path), arriving, sha256) != sha256:
            raise OSError(f"{place(path)} does not have the content that was written")
        arriving.replace(copy)
    finally:
        arriving.unlink(missing_ok=True)


def _make_room(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    known = sorted((each for each in cache.iterdir() if each.is_file()), key=lambda each: each.stat().st_mtime)
    size = sum(each.stat().st_size for each in known)
    while known and size > CACHE_BYTES:
        size -= known[0].stat().st_size
        known.pop(0).unlink(missing_ok=True)
