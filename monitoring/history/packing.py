"""The pipeline as a program that a job manager takes: a zip of its modules."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGE = "waymark_history"
ENTRY_CLASS = f"{PACKAGE}.program:rollups"
_MODULES = Path(__file__).parent / "pipeline"


def pack(target: Path) -> Path:
    """Equal modules give an equal file, so that a job manager that has it is not given it again."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(_MODULES.glob("*.py")):
            entry = zipfile.ZipInfo(f"{PACKAGE}/{module.name}", date_time=(2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, module.read_bytes())
    return target
