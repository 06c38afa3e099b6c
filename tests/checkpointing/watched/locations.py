"""Checkpoint locations to watch, and files that count the requests for them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpointing.storage.files import Entry, LocalFiles

START_MS = 1_800_000_000_000
SETTINGS = {"spark.sql.shuffle.partitions": "2"}


@dataclass
class Location:
    """A checkpoint location as Spark 4.3 writes it. Batch N starts `every_ms` after batch N-1."""

    path: Path
    query_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    every_ms: int = 1000
    start_ms: int = START_MS

    def __post_init__(self) -> None:
        for log in ("offsets", "commits"):
            (self.path / log).mkdir(parents=True, exist_ok=True)
        self.write("metadata", json.dumps({"id": self.query_id}), self.start_ms)

    @property
    def id(self) -> str:
        return uuid.UUID(self.query_id).hex

    def begin(self, batch: int, watermark: int = 0, source: Any = None, at_ms: int | None = None) -> None:
        at_ms = self.start_ms + batch * self.every_ms if at_ms is None else at_ms
        metadata = {"batchWatermarkMs": watermark, "batchTimestampMs": at_ms - 20, "conf": SETTINGS}
        self.write(f"offsets/{batch}", f"v1\n{json.dumps(metadata)}\n{json.dumps(source or batch)}", at_ms)
        self.write(f"offsets/.{batch}.crc", "crc", at_ms)

    def commit(self, batch: int, took_ms: int = 300) -> None:
        at_ms = (self.path / f"offsets/{batch}").stat().st_mtime_ns // 1_000_000
        self.write(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}', at_ms + took_ms)

    def run(self, first: int, last: int, **values: Any) -> Location:
        for batch in range(first, last + 1):
            self.begin(batch, **values)
            self.commit(batch)
        return self

    def write(self, name: str, content: str, at_ms: int = START_MS) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


class CountedFiles(LocalFiles):
    """Local files. `requests` lists what was listed or read."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def entries(self, path: str) -> Mapping[str, Entry]:
        self.requests.append(path)
        return super().entries(path)

    def read(self, path: str) -> bytes:
        self.requests.append(path)
        return super().read(path)

    def names(self, path: str) -> Any:
        raise AssertionError("an uncounted request")

    sizes = names
