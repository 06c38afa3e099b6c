"""The archive's directory, WAYMARK_ARCHIVE, on any storage that checkpoints can use.

It contains files such as

    checkpoints/day=2026-08-01/cluster=3/0000-1f2e….parquet     operators/…     samples/…

In each directory a manifest describes the files for readers without Waymark's database.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from django.conf import settings

from checkpointing.storage.checksums import sha256_of
from checkpointing.storage.files import Files
from checkpointing.storage.locations import is_local
from checkpointing.storage.opening import files_for

MANIFEST = "manifest.json"
# The size of the local cache of whole files from remote storage. The oldest files are deleted first.
CACHE_BYTES = 2_000_000_000
_WRITING = ".writing"


def files() -> Files:
    return files_for(settings.ARCHIVE)


def place(path: str) -> str:
    return f"{settings.ARCHIVE}/{path}"


def directory_of(kind: str, day: date, cluster_id: int) -> str:
    return f"{kind}/day={day.isoformat()}/cluster={cluster_id}"


@contextmanager
def workshop() -> Iterator[Path]:
    """Yield a directory for new files.

    If the archive is local, the directory is in it, so that a verified file is only renamed. The next call removes what
    a killed process left there.
    """
    if is_local(settings.ARCHIVE):
        files().make_directory(settings.ARCHIVE)
        parent = Path(settings.ARCHIVE) / _WRITING
        shutil.rmtree(parent, ignore_errors=True)
        parent.mkdir()
        try:
            yield parent
        finally:
            shutil.rmtree(parent, ignore_errors=True)
    else:
        with tempfile.TemporaryDirectory(prefix="waymark-archive-") as made:
            yield Path(made)


def put(source: Path, path: str) -> None:
    """Store `source` in the archive durably, and verify its checksum. Raises OSError if it cannot be stored so."""
    target, storage = place(path), files()
    directory = target.rpartition("/")[0]
    storage.make_directory(directory)
    storage.put(source, target)
    storage.make_durable([target, directory])
    sha256 = sha256_of(source)
    if storage.checksum(target, sha256) != sha256:
        raise OSError(f"{target} was written, but reading it back returned different content")


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
