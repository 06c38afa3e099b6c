"""The first process of a driver's pod: `python checkpointing.zip <work directory> <driver.json>`.

The zip file is Waymark's side of the driver, as the job manager has it. It is unpacked, because Java reads files of it.
Standard library only: nothing else is known to be in the job's image before the driver starts.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

_DRIVER = "checkpointing.spark.driver"


def main(arguments: list[str]) -> None:
    """Become the driver."""
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
