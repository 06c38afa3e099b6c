"""The upload of staged files to remote storage by the executors of a job, which `executor_uploads` runs.

This is for large state, where one driver's network would be the limit. The executors see the links where the driver
made them (deployment.py allows a master with executors elsewhere only on shared storage). Each executor computes a
file's checksum, stores the file, and verifies that all of it arrived.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from checkpointing.checkpoint_location.checksums import checksum_of
from checkpointing.storage.files import Files
from checkpointing.storage.opening import files_for

# Copying and hashing get the processor time that Spark's tasks leave free. If they leave none, Linux gives a thread of
# niceness 17 about 2 % (weights 23 to 1024). Measured were 4 % for niceness 15 and 10 % for 10. No batch may be delayed
# by more than 5 %.
NICENESS = 17


class UploadFailed(Exception):
    """The executors did not store all of the files. The text says why."""


@dataclass(frozen=True)
class Upload:
    """A staged file of `size` bytes. `location` is its place in the storage.

    `by_content`: `location` is a directory in which the file's name is its checksum. The files named in `there` already
    exist in it with this size.
    """

    path: str
    link: str
    size: int
    location: str
    by_content: bool
    there: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Uploaded:
    """A stored file. `is_new`: it did not exist before. `worker`: the machine and process that stored it."""

    path: str
    location: str
    checksum: str
    is_new: bool
    worker: str


class Uploads(Protocol):
    @property
    def least_bytes(self) -> int:
        """Return the size below which the driver uploads faster itself."""
        ...

    def bring(self, uploads: Sequence[Upload], what: str, is_over: Callable[[], bool]) -> Sequence[Uploaded]:
        """Upload all files. Raise UploadFailed, also soon after `is_over` returns True. Some files may exist then."""
        ...


# --- on an executor ---------------------------------------------------------------------------------------------------


def upload_share(uploads: Iterable[Upload]) -> Iterator[Uploaded]:
    """Upload the files of one task. OSError or StorageError ends the task with the reason."""
    own = list(uploads)
    files = files_for(own[0].location)
    with ThreadPoolExecutor(files.transfers, "transfer", step_back) as threads:
        yield from threads.map(lambda each: _upload_file(files, each), own)


def _upload_file(files: Files, upload: Upload) -> Uploaded:
    link = Path(upload.link)
    checksum = checksum_of(link)
    if link.stat().st_size != upload.size:
        raise OSError(f"{link} has {link.stat().st_size} bytes instead of {upload.size}")
    location = f"{upload.location}/{checksum}" if upload.by_content else upload.location
    is_new = checksum not in upload.there
    if is_new:
        files.put(link, location)
    return Uploaded(upload.path, location, checksum, is_new, f"{socket.gethostname()}:{os.getpid()}")


def step_back() -> None:
    """Lower the priority of this thread. Only Linux has priorities of threads; elsewhere the process's applies."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
