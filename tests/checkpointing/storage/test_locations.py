"""How a location that a person entered becomes an absolute one."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.storage.locations import as_absolute


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/savepoints/savepoint-1f0c-ab",
        "hdfs://namenode:8020/sp",
        "hdfs:///sp",
        "gs://bucket/a b",
        "abfss://container@account.dfs.core.windows.net/sp",
        "memory://waymark/sp",
        "jobmanager://memory/sp",
        "file:/data/sp",
        "file:///data/a%20b",
        "/data/a b",
    ],
)
def test_an_address_and_an_absolute_path_are_unchanged(location: str) -> None:
    assert as_absolute(location) == location


@pytest.mark.parametrize("location", ["sp", "./sp", "a b/sp", "s3/bucket", "a:b"])
def test_a_relative_path_starts_at_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, location: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_absolute(location) == str(tmp_path / location)
