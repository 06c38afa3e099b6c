"""The savepoint of a stop is found in storage only if it is that of the stop."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.stops import FoundAfterStop, NotFoundAfterStop, StopSearch
from tests.monitoring.savepoints.snapshots import lay_down

ID = "ab" * 16
ORDERED = datetime(2026, 11, 21, 12, tzinfo=UTC)
# Its checkpoint ID is 5.
SAVEPOINT = "2.3.0-rocksdb-0b-savepoint-canonical"


@pytest.fixture
def taken(tmp_path: Path, settings: Any) -> Path:
    """Return a savepoint of the job that was written a second after the order."""
    settings.STATE_ROOTS = (str(tmp_path),)
    path = lay_down(SAVEPOINT, tmp_path / "sp" / f"savepoint-{ID[:6]}-0123456789ab")
    written = (ORDERED + timedelta(seconds=1)).timestamp()
    os.utime(path / "_metadata", (written, written))
    return path


@pytest.fixture
def search(taken: Path) -> StopSearch:
    return StopSearch((f"file:{taken.parent}",), ID, ORDERED, 4, frozenset(), ORDERED + timedelta(seconds=2))


def not_found(search: StopSearch) -> NotFoundAfterStop:
    return NotFoundAfterStop(SavepointReason.ENDED_UNFOUND(since=search.silent_since, places=search.directories))


def test_it_is_found(search, taken):
    assert search.run() == FoundAfterStop(f"file:{taken}")
    elsewhere = replace(search, directories=("s3://bucket/sp", *search.directories))
    assert elsewhere.run() == FoundAfterStop(f"file:{taken}")


@pytest.mark.parametrize("changes", [{"since": ORDERED + timedelta(seconds=2)}, {"above": 5}, {"job_id": "cd" * 16}])
def test_that_of_another_order_is_not_taken(search, changes):
    other = replace(search, **changes)
    assert other.run() == not_found(other)


def test_that_of_another_request_is_not_taken(search, taken):
    known = replace(search, known=frozenset([str(taken)]))
    assert known.run() == not_found(known)


def test_an_incomplete_one_is_not_taken(search, taken):
    (taken / "_metadata").unlink()
    assert search.run() == not_found(search)
    (taken / "_metadata").write_bytes(b"\x49\x60\x67\x2d\0\0")
    assert search.run() == not_found(search)


def test_directories_that_cannot_be_read_are_named(search, settings):
    settings.STATE_ROOTS = ()
    why = SavepointReason.ENDED_UNSEARCHED(since=search.silent_since, places=search.directories)
    assert search.run() == NotFoundAfterStop(why)
    nothing = replace(search, directories=())
    assert "none of its directories, of which none is known." in str(nothing.run().why)
