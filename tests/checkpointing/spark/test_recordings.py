"""Spark still writes checkpoint directories with the recorded names, formats, versions and schemas."""

from __future__ import annotations

import contextlib
import io
import json
import re
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.checkpointing.spark.recordings import RECORDINGS, Recording, record, unpacked
from tests.spark_session import put_back
from tests.waiting import eventually

pytestmark = pytest.mark.spark

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAGIC = 4
DRIVERS, *OTHERS = RECORDINGS


@pytest.mark.parametrize("name", [DRIVERS, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS)])
def test_spark_writes_the_recorded_files(name: str, spark: Any, tmp_path: Path) -> None:
    recorded = unpacked(name, tmp_path / "recorded")
    with put_back(spark):
        written = record(spark, name, tmp_path / "written")
    expected = shapes(recorded)
    with contextlib.suppress(AssertionError):  # the next assertion shows the difference
        eventually("the files that Spark's maintenance may still write", lambda: shapes(written) == expected, 60.0)
    assert shapes(written) == expected
    assert operators(written) == operators(recorded)


def operators(recording: Recording) -> list[Any]:
    return [
        (v.id, v.kind, v.parallelism, re.sub(r"/.*/(in|out)\b", r"\1", v.name), v.query)
        for v in recording.plan.vertices
    ]


def shapes(recording: Recording) -> dict[str, set[str]]:
    """Return the formats of the files by general name, without version numbers, IDs, times and rows."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (*recording.location.rglob("*"), *recording.root.glob("out/_spark_metadata/*")):
        if path.is_file() and ".tmp" not in path.name:
            found[general(str(path.relative_to(recording.root)))].add(shape(path))
    return dict(found)


def general(name: str) -> str:
    """Return the name without version numbers: which versions Spark writes as whole states depends on its speed."""
    return re.sub(r"\d+(?=[_.-])", "N", UUID.sub("UUID", name)) if "/state/" in name else name


def shape(path: Path) -> str:
    content = path.read_bytes()
    if path.name == "schema":
        return content.hex()
    if path.suffix == ".zip":
        return str(zipped(content))
    if path.suffix == ".sst":
        return content[-2 * MAGIC :].hex()
    try:
        return " ".join(map(line, content.decode().splitlines()))
    except ValueError:  # neither text nor JSON
        return content[:MAGIC].hex()


def zipped(content: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        metadata = archive.read("metadata").decode().splitlines()
        return [*sorted({re.sub(r"\d+", "N", name) for name in archive.namelist()}), *map(line, metadata)]


def line(text: str) -> str:
    """Return a version unchanged, and JSON as its keys and types of values."""
    return text if re.fullmatch(r"v\d+", text) else keys(json.loads(text))


def keys(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {keys(value[name])}' for name in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(sorted(set(map(keys, value))))}]"
    return type(value).__name__
