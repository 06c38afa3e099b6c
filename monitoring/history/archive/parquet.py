"""Verify Parquet files of the archive. A file in which anything is damaged is not used.

Reading compares the checksum of each page. The footer, which has the positions of the pages, is compared with its
SHA-256 in the database. So a part can be read and verified without the rest of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from checkpointing.storage.checksums import sha256_of
from monitoring.history.archive import location
from monitoring.models import ArchivedFile
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason

T = TypeVar("T")

_TAIL = 8  # bytes at the end: the length of the footer, and the format's name


class Unreadable(Exception):
    """Raised if a file of the archive cannot be read; the message has its path and the cause."""

    def __init__(self, row: ArchivedFile, why: Reason | str) -> None:
        self.reason = ArchiveReason.FILE(path=location.place(row.path), problem=why)
        super().__init__(str(self.reason))
        self.row = row
        self.why = why
        self.limit_s: float | None = None


class Damaged(Unreadable):
    """Raised if the file is missing or its content is not what was written."""


class Silent(Unreadable):
    """Raised if the file's storage did not answer within `limit_s`, so that its condition is unknown."""

    def __init__(self, row: ArchivedFile, limit_s: float) -> None:
        super().__init__(row, ArchiveReason.STORAGE_SILENT(limit_s=limit_s))
        self.limit_s = limit_s


class Differs(Exception):
    """Raised if the bytes of a file are not what was written; the message names the difference."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def footer_sha256(path: Path) -> str:
    """Return the SHA-256 of the footer, which has the positions and row counts of pages. Raises OSError, Differs."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or length + _TAIL > size:
            raise Differs(ArchiveReason.NO_PARQUET())
        file.seek(size - _TAIL - length)
        return hashlib.sha256(file.read()).hexdigest()


def checked(row: ArchivedFile, *, whole: bool = False) -> Path:
    """Return the local path after verifying the footer, or with `whole` the whole file. Raises Damaged."""
    return read_and_note_problem(row, lambda: verified(row, whole=whole))


def verified(row: ArchivedFile, *, whole: bool = False) -> Path:
    """Do the same as `checked` without using the database, because a reader may outlive its request.

    Raises OSError, Differs.
    """
    path = location.here(row.path, row.sha256)
    size = path.stat().st_size
    if size != row.size:
        raise Differs(ArchiveReason.OTHER_SIZE(size=size, expected=row.size))
    if footer_sha256(path) != row.footer_sha256 or (whole and sha256_of(path) != row.sha256):
        raise Differs(ArchiveReason.OTHER_CONTENT())
    return path


def read_and_note_problem(row: ArchivedFile, read: Callable[[], T]) -> T:
    """Return the result of `read`. If it fails, store the problem in the file's row and raise Damaged.

    The health page shows the problem until the file can be read again.
    """
    try:
        found = read()
    except FileNotFoundError:
        raise _noted(row, ArchiveReason.MISSING()) from None
    except Differs as error:
        raise _noted(row, error.reason) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _noted(row, str(error)) from error
    if row.problem:
        ArchivedFile.objects.filter(pk=row.pk).update(**columns("problem", ""))
    return found


def _noted(row: ArchivedFile, why: Reason | str) -> Damaged:
    problem = why if isinstance(why, Reason) else why[:1000]
    ArchivedFile.objects.filter(pk=row.pk).update(**columns("problem", problem))
    return Damaged(row, why)
