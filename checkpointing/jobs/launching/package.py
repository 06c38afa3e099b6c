"""The package `checkpointing` as a zip file, for Python processes elsewhere: drivers and Spark's workers."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGE = "checkpointing"
PACKAGE_NAME = f"{PACKAGE}.zip"
PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def zipped_package(target: Path, package_root: Path = PACKAGE_ROOT) -> Path:
    """Write the package's own modules to `target`. Their dependencies must be installed where they run."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((package_root / PACKAGE).rglob("*")):
            if path.suffix in (".py", ".properties"):
                archive.write(path, path.relative_to(package_root))
    return target
