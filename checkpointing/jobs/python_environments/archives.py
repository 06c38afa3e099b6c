"""Unpacks a packed environment (conda-pack, venv-pack). No file and no link of it leads out of the directory.

There is one exception: venv-pack packs `bin/python` as a link to the Python that the environment was made from. That
link is made here if the Python exists on this machine.
"""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from checkpointing.jobs.python_environments.failures import EnvironmentFailed

MOST_MEMBERS = 1_000_000
_CHUNK = 1 << 20
_INTERPRETER = re.compile(r"(\./)?bin/python[0-9.]*")


def unpack(archive: Path, directory: Path, most_bytes: int, check: Callable[[], None]) -> None:
    """Unpack the archive. Call `check` for each member. Raise EnvironmentFailed, OSError, and what `check` raises."""
    interpreters: dict[str, str] = {}
    try:
        with tarfile.open(archive, "r:*") as tar:
            _unpack(tar, directory, most_bytes, interpreters, check)
    except tarfile.FilterError as error:
        raise _mistake(str(error)) from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(error) from error
    except OSError as error:
        if error.errno is None:  # gzip and bzip2 report damaged data as an OSError without a number
            raise _damaged(error) from error
        raise
    for name, target in interpreters.items():
        _link(directory / name, Path(target))


def _unpack(
    tar: tarfile.TarFile, directory: Path, most_bytes: int, interpreters: dict[str, str], check: Callable[[], None]
) -> None:
    size = 0
    for number, member in enumerate(tar):
        check()
        size += max(0, member.size)
        if size > most_bytes:
            raise _mistake(f"it is larger than {most_bytes} bytes unpacked (WAYMARK_MAX_ENVIRONMENT_BYTES)")
        if number >= MOST_MEMBERS:
            raise _mistake(f"it has more than {MOST_MEMBERS} files")
        if member.issym() and member.linkname.startswith("/") and _INTERPRETER.fullmatch(member.name):
            interpreters[member.name] = member.linkname
        else:
            tar.extract(member, directory, filter="data")
    # tarfile stops before the checksum at the end of the compressed file.
    while tar.fileobj is not None and tar.fileobj.read(_CHUNK):
        check()


def _link(link: Path, target: Path) -> None:
    if not os.access(target, os.X_OK) or not target.is_file():
        raise _mistake(
            f"its bin/{link.name} is a link to {target}, which is not on this machine; "
            "pack the environment with its Python (conda-pack), or from a Python that is installed here"
        )
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)


def _damaged(error: Exception) -> EnvironmentFailed:
    return _mistake(f"it is not a tar file, as conda-pack and venv-pack write, or it is damaged: {error}")


def _mistake(problem: str) -> EnvironmentFailed:
    return EnvironmentFailed(f"the archive cannot be used: {problem}", is_mistake=True)
