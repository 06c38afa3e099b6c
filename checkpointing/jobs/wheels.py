"""Wheels as programs and as `spark.submit.pyFiles`. A wheel is a zip file, and Spark imports Python files from .zip.

This works only for pure Python wheels. Other wheels must be in an environment of the job (`waymark.python`).
"""

from __future__ import annotations

import io
import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.storage.errors import StorageError
from checkpointing.storage.locations import is_local, local_path

SUFFIX = ".whl"
PY_FILES = "spark.submit.pyFiles"
_MOST_METADATA_BYTES = 1 << 20


class NotPure(ValueError):
    """The file is not a wheel, or it cannot be imported from a zip file. The text says which."""


def is_wheel(name: str) -> bool:
    return name.endswith(SUFFIX)


def zip_name(name: str) -> str:
    return f"{name.removesuffix(SUFFIX)}.zip"


def check_pure(wheel: bytes | Path) -> None:
    """Raise NotPure if the wheel is not pure Python, OSError if the file cannot be read."""
    source: IO[bytes] | Path = io.BytesIO(wheel) if isinstance(wheel, bytes) else wheel
    try:
        with zipfile.ZipFile(source) as archive:
            metadata = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
            with archive.open(metadata[0]) as file:
                lines = file.read(_MOST_METADATA_BYTES).decode().splitlines()
    except (zipfile.BadZipFile, IndexError, UnicodeDecodeError, NotImplementedError, RuntimeError) as error:
        raise NotPure("it is not a wheel") from error
    if "Root-Is-Purelib: true" not in lines:
        raise NotPure("it has compiled parts; put it into an environment of the job (waymark.python.requirements)")


def check_py_files(configuration: Mapping[str, str]) -> None:
    """Raise InvalidConfiguration for a wheel in `spark.submit.pyFiles` that cannot be used. Blocks."""
    for file in filter(is_wheel, py_files(configuration)):
        try:
            if not is_local(file):
                raise NotPure("only wheels on the job manager's machine are allowed")
            check_pure(Path(local_path(file)))
        except (OSError, StorageError, NotPure) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise InvalidConfiguration(PY_FILES, file, f"a pure Python wheel: {reason}") from error


def wheels_as_zips(settings: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the settings with a .zip copy below `directory` for each wheel. Raise InvalidConfiguration or OSError."""
    files = py_files(settings)
    if not any(map(is_wheel, files)):
        return dict(settings)
    check_py_files(settings)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {**settings, PY_FILES: ",".join(_as_zip(file, directory) if is_wheel(file) else file for file in files)}


def make_importable(settings: Mapping[str, str], directory: Path) -> None:
    """Make the Python files that are on this machine importable for this process, before Spark starts.

    Single modules are copied into `directory`. Spark fetches files from other places when the session starts. Raise
    OSError.
    """
    for file in filter(is_local, reversed(py_files(settings))):
        path = Path(local_path(file))
        if path.suffix == ".py":
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, directory / path.name)
            path = directory
        sys.path.insert(0, str(path))


def _as_zip(file: str, directory: Path) -> str:
    wheel = Path(local_path(file))
    return str(shutil.copyfile(wheel, directory / zip_name(wheel.name)))


def py_files(settings: Mapping[str, str]) -> list[str]:
    return [part.strip() for part in settings.get(PY_FILES, "").split(",") if part.strip()]
