"""Locations of files, which are texts everywhere.

A location is an absolute local path, or `scheme://authority/path` of a file system that fsspec supports
(`s3://bucket/waymark`, `ftp://host/waymark`). It never contains a secret, because it is logged, shown and stored.
Credentials belong into fsspec's own configuration.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from checkpointing.model.refusals import Refusal, Refused
from checkpointing.storage.errors import StorageError

# The memory of a job manager as a location: `execution.checkpointing.storage: jobmanager`.
JOB_MANAGER = "jobmanager"
JOB_MANAGER_MEMORY = f"{JOB_MANAGER}://memory"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_REMOTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_CREDENTIALS = re.compile(r"//[^/]*@")


class BadLocation(Refused, StorageError):
    """A text is not a location."""


def scheme_of(location: str) -> str | None:
    """Return the scheme, or None for a local path, which may also be a `file:` address."""
    match = _SCHEME.match(location)
    return None if match is None or match[1].lower() == "file" else match[1].lower()


def is_local(location: str) -> bool:
    return scheme_of(location) is None


def as_absolute(location: str) -> str:
    """Return `location` with a relative local path resolved against the working directory.

    An address with a scheme (`s3://…`, `file:…`) is returned unchanged.
    """
    is_plain_path = is_local(location) and not location.startswith("file:")
    return str(Path(location).absolute()) if is_plain_path else location


def canonical(location: str) -> str:
    """Return the canonical spelling of `location`, without a slash at its end. Raise BadLocation if it is invalid."""
    return local_path(location).rstrip("/") or "/" if is_local(location) else _canonical_remote(location)


def local_path(path: str) -> str:
    """Return the absolute local path in `path` (plain, or Flink's form of a `file:` URI). Links are not resolved."""
    if path.startswith("file:"):
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise BadLocation(Refusal.OTHER_MACHINE, location=path)
        path = unquote(parts.path)
    elif not is_local(path):
        raise StorageError(f"{_without_secrets(path)}: a local path or file: address is expected")
    if not path.startswith("/") or "\x00" in path:
        raise BadLocation(Refusal.NOT_ABSOLUTE, location=repr(_without_secrets(path)))
    return path


def parent(location: str) -> str:
    return location.rpartition("/")[0]


def name(location: str) -> str:
    return location.rpartition("/")[2]


def _canonical_remote(location: str) -> str:
    shown = _without_secrets(location)
    match = _REMOTE.fullmatch(location)
    if match is None:
        raise BadLocation(Refusal.SLASHES_MISSING, location=shown)
    authority, path = match[2], (match[3] or "").rstrip("/")
    if ":" in authority.rpartition("@")[0]:
        raise BadLocation(Refusal.HAS_PASSWORD, location=shown)
    if any(character in location for character in "?#\x00\r\n"):
        raise BadLocation(Refusal.BAD_CHARACTER, location=shown)
    if path and any(part in ("", ".", "..") for part in path.split("/")[1:]):
        raise BadLocation(Refusal.BAD_NAME, location=shown)
    return f"{match[1].lower()}://{authority}{path}"


def _without_secrets(location: str) -> str:
    return _CREDENTIALS.sub("//…@", location.partition("?")[0])
