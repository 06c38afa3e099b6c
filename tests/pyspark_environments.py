"""Virtual environments with another version of PySpark, for tests of jobs that set their own Python.

The first test that needs an environment creates it with pip (1 GB). It is stored in WAYMARK_PYSPARK_CACHE, by default
`~/.cache/waymark-pyspark`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from checkpointing.jobs.launching.python import NEEDED

PANDAS_VERSION = "2.2.3"
CACHE = Path(os.environ.get("WAYMARK_PYSPARK_CACHE", Path.home() / ".cache" / "waymark-pyspark"))


def python_with_pyspark_or_skip(version: str) -> Path:
    """Return the Python of an environment with this PySpark and PANDAS_VERSION. Skip the test if pip fails."""
    CACHE.mkdir(parents=True, exist_ok=True)
    wanted = [f"pyspark=={version}", f"pandas=={PANDAS_VERSION}", *("pyarrow", "protobuf<7", *NEEDED)]
    home = CACHE / f"pyspark-{version}-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:8]}"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            _make(home, version, wanted)
    return home / "bin" / "python"


def _make(home: Path, version: str, wanted: Sequence[str]) -> None:
    unfinished = home.with_name(f"{home.name}.unfinished")
    venv.create(unfinished, clear=True, symlinks=True)
    python = str(unfinished / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *wanted]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip installs no PySpark {version}: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
    unfinished.rename(home)
