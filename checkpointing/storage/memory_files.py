"""`execution.checkpointing.storage: jobmanager`: checkpoints in the job manager's own memory, for trials.

Both ends use the same class. In the driver it holds a subtask's files until the acknowledgement carries them. In the
job manager it holds them until the checkpoint is discarded. Nothing outlives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path

from checkpointing.storage.checksums import checksum_of
from checkpointing.storage.errors import StorageError
from checkpointing.storage.files import Entry
from checkpointing.storage.locations import name, parent

# Flink's default for its JobManagerCheckpointStorage.
MAX_STATE_SIZE = 5 * 1024 * 1024


class StateTooLarge(StorageError):
    """The state does not fit into memory. The text is Flink's."""

    def __init__(self, size: int) -> None:
        super().__init__(
            "Size of the state is larger than the maximum permitted memory-backed state. "
            f"Size={size}, maxSize={MAX_STATE_SIZE}. "
            "Consider using a different checkpoint storage, like the FileSystemCheckpointStorage."
        )


class MemoryFiles:
    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._directories: set[str] = set()
        self._lock = threading.Lock()

    @property
    def transfers(self) -> int:
        return 1

    def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
        with self._lock:
            if new and (path in self._directories or self._below(path)):
                raise FileExistsError(f"{path} exists already")
            while path and not path.endswith(":/"):
                self._directories.add(path)
                path = parent(path)

    def has_directory(self, path: str) -> bool:
        return path in self._directories

    def write_durably(self, path: str, content: bytes) -> None:
        with self._lock:
            if path in self._directories:
                raise IsADirectoryError(f"{path} is a directory")
            self._files[path] = content

    def put(self, source: Path, path: str) -> None:
        self.write_durably(path, source.read_bytes())

    def is_same(self, path: str, source: Path, checksum: str) -> bool:
        return self.checksum(path, checksum) == checksum

    def make_durable(self, paths: Iterable[str]) -> None:
        """Do nothing: the files are as safe as the process."""

    def get(self, path: str, target: Path, like: str) -> str:
        content = self.read(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(content)
        return checksum_of(BytesIO(content), like)

    def read(self, path: str) -> bytes:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def read_part(self, path: str, start: int, size: int) -> bytes:
        return self.read(path)[start : start + size]

    def take(self, path: str) -> bytes:
        """Return the file's content and forget the file."""
        with self._lock:
            return self._files.pop(path)

    def checksum(self, path: str, like: str) -> str:
        return checksum_of(BytesIO(self.read(path)), like)

    def entries(self, path: str) -> Mapping[str, Entry]:
        sizes = self.sizes(path)
        if path not in self._directories and not self._below(path):
            raise FileNotFoundError(path)
        return {name: Entry(name not in sizes, sizes.get(name, 0), None) for name in self.names(path)}

    def names(self, path: str) -> Sequence[str]:
        with self._lock:
            below = [*self._below(path), *(d for d in self._directories if d.startswith(f"{path}/"))]
        return list({each.removeprefix(f"{path}/").partition("/")[0] for each in below})

    def sizes(self, path: str) -> Mapping[str, int]:
        with self._lock:
            return {name(each): len(self._files[each]) for each in self._below(path) if parent(each) == path}

    def remove_file(self, path: str) -> None:
        with self._lock:
            self._files.pop(path, None)

    def remove_empty_directory(self, path: str) -> None:
        if not self.names(path):
            with self._lock:
                self._directories.discard(path)

    def remove_tree(self, path: str) -> None:
        with self._lock:
            for each in self._below(path):
                del self._files[each]
            self._directories = {d for d in self._directories if d != path and not d.startswith(f"{path}/")}

    def _below(self, path: str) -> list[str]:
        return [each for each in self._files if each.startswith(f"{path}/")]
