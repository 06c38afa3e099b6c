"""The first process of a driver's pod: `python checkpointing.zip <work directory> <driver.json>`.

The zip file contains Waymark's part of the driver, from the job manager. It is unpacked, because Java reads files of
it. This module uses the standard library only: other packages may be missing in the image.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

_DRIVER = "checkpointing.spark.driver"


def main(arguments: list[str]) -> None:
    """Replace this process by the driver."""
    package, directory, specification = arguments
    work = Path(directory)
    side = work / "waymark"
    for needed in (side, work / "tmp"):
        needed.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(package) as archive:
        archive.extractall(side)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(side), os.environ.get("PYTHONPATH")]))
    os.chdir(work)
    os.execv(sys.executable, [sys.executable, "-m", _DRIVER, specification])  # noqa: S606
