"""The pipeline as a program that a job manager takes: a zip of its modules."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

PACKAGE = "waymark_history"
FILE_NAME = f"{PACKAGE}.zip"
ENTRY_CLASS = f"{PACKAGE}.program:rollups"
_MODULES = Path(__file__).parent / "pipeline"


@functools.cache
def packed() -> bytes:
    """Equal modules give equal bytes, so that a job that runs them is not started anew for nothing."""
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
