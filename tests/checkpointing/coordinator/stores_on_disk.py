"""A handle store and an ID counter in files. They survive a killed process, and each of their steps is one on disk."""

from __future__ import annotations

from pathlib import Path

from checkpointing.durable_files import write_durably
from checkpointing.ha.checkpoint_id_counter import CheckpointIDCounter
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.ha.errors import NodeExists, NodeMissing
from checkpointing.model.status import JobStatus
from checkpointing.storage import read_metadata
from tests.checkpointing.coordinator.job_on_disk import OpenStores


class HandlesOnDisk:
    durable = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add_and_lock(self, name: str, handle: bytes) -> None:
        if self.exists(name):
            raise NodeExists(name)
        write_durably(self._directory / name, handle.decode())

    def replace(self, name: str, handle: bytes) -> None:
        self.get_and_lock(name)
        write_durably(self._directory / name, handle.decode())

    def get_and_lock(self, name: str) -> bytes:
        if not self.exists(name):
            raise NodeMissing(name)
        return (self._directory / name).read_bytes()

    def get_all_and_lock(self) -> list[tuple[str, bytes]]:
        return [(name, self.get_and_lock(name)) for name in self.names()]

    def names(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob("[0-9]*"))

    def exists(self, name: str) -> bool:
        return (self._directory / name).exists()

    def release(self, name: str) -> None:
        """Do nothing: no other process holds a lock."""

    def release_all(self) -> None:
        """Do nothing: no other process holds a lock."""

    def release_and_try_remove(self, name: str) -> bool:
        (self._directory / name).unlink(missing_ok=True)
        return True

    def clear_entries(self) -> None:
        for name in self.names():
            self.release_and_try_remove(name)


class CounterOnDisk:
    def __init__(self, path: Path) -> None:
        self._path = path

    def get_and_increment(self) -> int:
        value = self.get()
        self.set_count(value + 1)
        return value

    def get(self) -> int:
        return int(self._path.read_text()) if self._path.exists() else 1

    def set_count(self, value: int) -> None:
        write_durably(self._path, str(value))

    def shutdown(self, status: JobStatus) -> None:
        if status.globally_terminal:
            self._path.unlink(missing_ok=True)


def stores_on_disk(directory: Path) -> OpenStores:
    def open_stores(job_id: str, num_retained: int) -> tuple[HandleCompletedCheckpointStore, CheckpointIDCounter]:
        handles = HandlesOnDisk(directory / job_id)
        store = HandleCompletedCheckpointStore(handles, num_retained, read_metadata)
        return store, CounterOnDisk(directory / f"{job_id}.counter")

    return open_stores
