"""Event logs as Spark writes them, for tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from checkpointing.storage.files import Entry, LocalFiles

START_MS = 1_800_000_000_000
QUERY, RUN = str(UUID(int=1)), str(UUID(int=2))
LISTENER = "org.apache.spark.sql.streaming.StreamingQueryListener$"
Json = dict[str, Any]


def time_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def header(program: str = "shop") -> list[Json]:
    return [
        {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"},
        {"Event": "SparkListenerApplicationStart", "App Name": program, "App ID": "app-1", "Timestamp": START_MS},
    ]


def started(name: str | None = "orders", run: str = RUN, at_ms: int = START_MS) -> Json:
    event = LISTENER + "QueryStartedEvent"
    return {"Event": event, "id": QUERY, "runId": run, "name": name, "timestamp": time_of(at_ms)}


def progress(number: int, run: str = RUN, at_ms: int | None = None, **fields: Any) -> Json:
    batch = {
        "id": QUERY,
        "runId": run,
        "name": "orders",
        "timestamp": time_of(START_MS + number * 1000 if at_ms is None else at_ms),
        "batchId": number,
        "batchDuration": 300,
        "durationMs": {"addBatch": 200, "commitOffsets": 30, "triggerExecution": 300},
        "eventTime": {"watermark": time_of(START_MS)},
        "stateOperators": [{"operatorName": "stateStoreSave", "numRowsTotal": 4, "memoryUsedBytes": 900}],
        "sources": [
            {
                "description": "Rate",
                "startOffset": number,
                "endOffset": number + 1,
                "numInputRows": 7,
                "inputRowsPerSecond": "NaN",
                "processedRowsPerSecond": 2.5,
            }
        ],
        "sink": {"description": "Noop", "numOutputRows": -1},
    } | fields
    return {"Event": LISTENER + "QueryProgressEvent", "progress": batch}


def job_end(at_ms: int) -> Json:
    return {"Event": "SparkListenerJobEnd", "Job ID": 1, "Completion Time": at_ms, "Job Result": {}}


def terminated(exception: str | None = None, run: str = RUN) -> Json:
    return {"Event": LISTENER + "QueryTerminatedEvent", "id": QUERY, "runId": run, "exception": exception}


def application_end(at_ms: int) -> Json:
    return {"Event": "SparkListenerApplicationEnd", "Timestamp": at_ms}


def text_of(events: Iterable[Json]) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


def compressed(codec: str, content: bytes, *, is_first: bool = True, block: int = 1000) -> bytes:
    """Return the content as the codec's stream of Spark writes it."""
    pieces = [content[at : at + block] for at in range(0, len(content), block)]
    match codec:
        case "zstd":
            return pa.compress(content, "zstd", asbytes=True)
        case "lz4":
            return b"".join(map(_lz4, pieces))
        case "snappy":
            start = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2 if is_first else b""
            return start + b"".join(map(_snappy, pieces))
    return content


def _lz4(piece: bytes) -> bytes:
    packed = pa.compress(piece, "lz4_raw", asbytes=True)
    sizes = len(packed).to_bytes(4, "little") + len(piece).to_bytes(4, "little")
    return b"LZ4Block" + bytes([0x26]) + sizes + bytes(4) + packed


def _snappy(piece: bytes) -> bytes:
    packed = pa.compress(piece, "snappy", asbytes=True)
    return len(packed).to_bytes(4, "big") + packed


class EventLog:
    """A log in `root`. `append` writes one flush."""

    def __init__(self, root: Path, name: str = "app-1", codec: str = "", *, rolling: bool = False) -> None:
        self.codec, self.name, self.number = codec, name, 1
        self.suffix = f".{codec}" if codec else ""
        self.directory = root / f"eventlog_v2_{name}" if rolling else root
        self.rolling = rolling
        self.directory.mkdir(parents=True, exist_ok=True)
        if rolling:
            (self.directory / f"appstatus_{name}.inprogress").touch()
        self.path.touch()

    @property
    def path(self) -> Path:
        if self.rolling:
            return self.directory / f"events_{self.number}_{self.name}{self.suffix}"
        return self.directory / f"{self.name}{self.suffix}.inprogress"

    def append(self, *events: Json, at_ms: int = START_MS) -> EventLog:
        is_first = self.path.stat().st_size == 0
        self.append_bytes(compressed(self.codec, text_of(events), is_first=is_first), at_ms)
        return self

    def append_bytes(self, content: bytes, at_ms: int = START_MS) -> None:
        with self.path.open("ab") as file:
            file.write(content)
        os.utime(self.path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def roll(self) -> None:
        self.number += 1
        self.path.touch()

    def compact(self, number: int, *events: Json) -> None:
        """Replace the files up to `number`, as a History Server does."""
        for each in self.directory.glob("events_*"):
            if int(each.name.split("_")[1]) <= number:
                each.unlink()
        target = self.directory / f"events_{number}_{self.name}{self.suffix}.compact"
        target.write_bytes(compressed(self.codec, text_of(events)))

    def close(self) -> None:
        if self.rolling:
            status = self.directory / f"appstatus_{self.name}"
            (self.directory / f"{status.name}.inprogress").rename(status)
        else:
            self.path.rename(self.path.with_name(self.path.name.removesuffix(".inprogress")))


class CountedFiles(LocalFiles):
    """Local files. `read` counts the bytes that were read, and `listings` what was listed."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self.listings: list[str] = []

    def entries(self, path: str) -> dict[str, Entry]:
        self.listings.append(path)
        return dict(super().entries(path))

    def read_part(self, path: str, start: int, size: int) -> bytes:
        content = super().read_part(path, start, size)
        self.read_bytes += len(content)
        return content

    def read(self, path: str) -> bytes:
        raise AssertionError("a whole file")


def numbers_of(batches: Iterable[Json]) -> Iterator[int]:
    return (batch["batchId"] for batch in batches)
