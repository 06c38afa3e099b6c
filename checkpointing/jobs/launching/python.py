"""The Python of a job's driver: the job manager's own, or the one that `waymark.python` names.

Waymark's part of the driver comes from the job manager. The named Python must have PySpark and the packages that this
part imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from checkpointing.jobs.launching.package import PACKAGE, PACKAGE_ROOT
from checkpointing.model.configuration import InvalidConfiguration

KEY = "waymark.python"
NEEDED = ("pyspark", "py4j", "fsspec", "kazoo", "msgspec", "websockets")
PYTHON_FROM, PYSPARK_FROM, PYSPARK_TO = (3, 11), (4, 0), (4, 3)
# Environment variables that locate the job manager's own Python and Spark.
_OF_THE_OWN = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "SPARK_HOME")
_LIMIT_S = 60.0
_PROBE = f"""
import json, sys
from importlib.metadata import PackageNotFoundError, version
def found(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
print(json.dumps([list(sys.version_info[:2]), {{name: found(name) for name in {NEEDED!r}}}]))
"""


def supported_pyspark() -> str:
    """Return the versions of PySpark that a driver may have, as text."""
    return f"{_dotted(PYSPARK_FROM)} to {_dotted(PYSPARK_TO)}"


def python_of(configuration: Mapping[str, str]) -> str:
    return configuration.get(KEY) or sys.executable


def has_own_python(configuration: Mapping[str, str]) -> bool:
    return python_of(configuration) != sys.executable


def check_python(configuration: Mapping[str, str]) -> None:
    """Raise InvalidConfiguration if no driver can run in the Python that the job names. Blocks: starts that Python."""
    if not has_own_python(configuration):
        return
    python = configuration[KEY]
    _check_executable(python)
    problem = problem_of(python)
    if problem:
        raise InvalidConfiguration(KEY, python, problem)


def problem_of(python: str) -> str:
    """Return what this Python lacks for a driver, or "" if it has everything. Blocks: it starts that Python."""
    try:
        version, packages = _probe(python)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        return f"a Python that starts ({type(error).__name__})"
    missing = [name for name in NEEDED if packages[name] is None]
    if version < PYTHON_FROM:
        return f"Python {_dotted(PYTHON_FROM)} or newer; it is {_dotted(version)}"
    if missing:
        return f"an environment with {', '.join(NEEDED)}; it lacks {', '.join(missing)}"
    pyspark = str(packages["pyspark"])
    if not PYSPARK_FROM <= _numbers(pyspark) <= PYSPARK_TO:
        return f"an environment with PySpark {supported_pyspark()}; it has {pyspark}"
    return ""


def in_own_python(environment: Mapping[str, str], python: str, directory: Path) -> dict[str, str]:
    """Return the environment of a driver in `python`, without the job manager's own Python and Spark.

    `directory` belongs to the driver. It gets a link to Waymark's part only, because packages of the job manager next
    to that part may have other versions in `python`. Raise OSError.
    """
    directory.mkdir(mode=0o700)
    (directory / PACKAGE).symlink_to(PACKAGE_ROOT / PACKAGE, target_is_directory=True)
    kept = without_own_python(environment)
    return {**kept, "PYTHONPATH": str(directory), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


def without_own_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that locate the job manager's own Python and Spark."""
    return {name: value for name, value in environment.items() if name not in _OF_THE_OWN}


def _check_executable(python: str) -> None:
    path = Path(python)
    if not path.is_absolute():
        raise InvalidConfiguration(KEY, python, "an absolute path, such as /srv/venvs/orders/bin/python")
    if not path.is_file():
        raise InvalidConfiguration(KEY, python, "a file that exists on the job manager's machine")
    if not os.access(path, os.X_OK):
        raise InvalidConfiguration(KEY, python, "a file that the job manager's account may execute")


def _probe(python: str) -> tuple[tuple[int, int], dict[str, str | None]]:
    """Return its version, and the versions of the packages in NEEDED."""
    command = [python, "-I", "-c", _PROBE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True, env={})
    (major, minor), packages = json.loads(done.stdout)
    return (major, minor), packages


def _numbers(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
