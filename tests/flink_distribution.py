"""Apache Flink for tests, from the Python package `apache-flink-libraries`, which Waymark itself does not require.

The package (330 MB) is stored in WAYMARK_FLINK_CACHE, by default `~/.cache/waymark-flink`. `make nightly` downloads it.
`make test` runs the tests of a real Flink only if the package is already stored.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests.profile import FLINK_VERSION, IS_CI

# The Java packages that Flink's scripts open with --add-opens.
_OPENED = (
    "java.lang", "java.net", "java.io", "java.nio", "java.lang.reflect", "java.text", "java.time", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
)  # fmt: skip


class FlinkNotFetched(Exception):
    """The package is not stored, or pip cannot download it. The message says which."""


def flink_or_skip(version: str = FLINK_VERSION) -> Path:
    try:
        return flink_home(version, fetch=not IS_CI)
    except FlinkNotFetched as error:
        pytest.skip(f"no apache-flink-libraries {version}: {error}")


def flink_home(version: str = FLINK_VERSION, *, fetch: bool = True) -> Path:
    """Return the directory with `lib/`. Raise FlinkNotFetched if there is none."""
    cache = Path(os.environ.get("WAYMARK_FLINK_CACHE", Path.home() / ".cache" / "waymark-flink"))
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"flink-{version}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            if not fetch:
                raise FlinkNotFetched(f"{home} is not there (make nightly fetches it)")
            _fetch(version, home)
    return home


def _fetch(version: str, home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        wanted = f"apache-flink-libraries=={version}"
        done = subprocess.run([*pip, "--dest", directory, wanted], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FlinkNotFetched(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed")
        (archive,) = Path(directory).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        (unpacked,) = Path(directory).glob("*/deps")
        shutil.move(unpacked, home)


def java_options() -> list[str]:
    """Return the options of each JVM of Flink, for a small heap and a fast start."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    return [*opened, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class FlinkCommandLine:
    """The command line `flink …` for one REST address. `token` is set as docs/configure.md describes."""

    def __init__(self, home: Path, java_home: Path, directory: Path, address: str, token: str = "") -> None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.yaml").write_text(f'rest.address: {host}\nrest.port: "{port}"\n')
        self._command = [
            str(java_home / "bin" / "java"),
            *java_options(),
            "-cp",
            f"{home / 'lib'}/*",
            "org.apache.flink.client.cli.CliFrontend",
        ]
        self._environment = {**os.environ, "FLINK_CONF_DIR": str(directory)}
        if token:
            # Flink refuses a space after the colon.
            self._environment["FLINK_REST_CLIENT_HEADERS"] = f"Authorization:Bearer {token}"

    def run(self, *arguments: str, limit_s: float = 60) -> tuple[int, str]:
        """Run a command. Return its exit code and its output."""
        done = subprocess.run(
            [*self._command, *arguments],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )
        return done.returncode, done.stdout
