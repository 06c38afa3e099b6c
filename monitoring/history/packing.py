"""Pack the program of the pipeline's job as a zip of modules, and write the file with the database's address.

Everybody who may see a job sees its arguments, so the arguments contain the path of that file, not its content.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import zipfile
from pathlib import Path

from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from checkpointing.jobs.launching.package import zipped_package

PACKAGE = "waymark_history"
FILE_NAME = f"{PACKAGE}.zip"
ENTRY_CLASS = f"{PACKAGE}.program:rollups"
_MODULES = Path(__file__).parent / "pipeline"


@functools.cache
def packed() -> bytes:
    """Return the zip. Equal modules give equal bytes, so that the job is not restarted without a change."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(_MODULES.glob("*.py")):
            entry = zipfile.ZipInfo(f"{PACKAGE}/{module.name}", date_time=(2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, module.read_bytes())
    return file.getvalue()


def pack(target: Path) -> Path:
    target.write_bytes(packed())
    return target


def pack_for_executors(target: Path) -> Path:
    """Write the modules that archiving needs on Spark's executors, under the names by which tasks refer to them."""
    monitoring = Path(settings.BASE_DIR) / "monitoring"
    packages = (monitoring / "__init__.py", monitoring / "history" / "__init__.py")
    with zipfile.ZipFile(zipped_package(target), "a", zipfile.ZIP_DEFLATED) as archive:
        for path in (*packages, *_MODULES.glob("*.py")):
            archive.write(path, path.relative_to(settings.BASE_DIR))
    return target


def place() -> Path:
    return Path(settings.VAR_DIR) / "history" / "database"


def keep_database_file(path: Path) -> bool:
    """Write Django's database address to a file that only Waymark's user can read; return whether it changed."""
    wanted = _conninfo()
    with contextlib.suppress(OSError):
        if path.read_text() == wanted:
            return False
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(wanted)
    unfinished.replace(path)
    return True


def _conninfo() -> str:
    """Return the address in libpq's form, without options that only Django or psycopg know."""
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    given = connection.get_connection_params()
    wanted = {name: value for name, value in given.items() if name in known and value is not None}
    return make_conninfo(**{**wanted, "client_encoding": "UTF8", "options": "-c timezone=UTC"})
