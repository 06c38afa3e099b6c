"""Compute the environment variables of every part from the var directory and the caller's environment."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from checkpointing.java import JavaInstallation
from dashboard.stack.parts import ExternalPart
from dashboard.stack.ports import LOOPBACK, PortBook
from dashboard.stack.postgres import PostgresServer, is_reachable, server_user
from dashboard.stack.record import write_private
from dashboard.stack.redis import RedisServer
from dashboard.stack.zookeeper import USER, ZooKeeperServer

BASE_DIRECTORY = Path(__file__).resolve().parent.parent.parent

# If the variable of a part is set, the part runs elsewhere and is not started.
EXTERNAL_VARIABLES = {
    "postgres": "DATABASE_URL",
    "redis": "REDIS_URL",
    "zookeeper": "ZOOKEEPER_HOSTS",
    "jobmanager": "WAYMARK_JOBMANAGER_URL",
    "mail": "EMAIL_URL",
}
PREFERRED_PORTS = {
    "redis": 6379,
    "zookeeper": 2181,
    "jobmanager": 8081,
    "mail": 8025,
    "web": 8000,
    "demo-service": 8090,
}
JOBMANAGER_TOKEN = "WAYMARK_JOBMANAGER_TOKEN"  # noqa: S105  (its name)
ADMIN_PASSWORD = "WAYMARK_ADMIN_PASSWORD"  # noqa: S105  (its name)
OWN_TOKEN = "jobmanager-token"  # noqa: S105  (the file in the var directory with the token that `up` creates)
_PORT_VARIABLES = {"web": "WAYMARK_PORT", "jobmanager": "WAYMARK_JOBMANAGER_PORT"}
_LONGEST_SOCKET_DIRECTORY = 88
# Directories that WAYMARK_VAR must not name, because Waymark removes the permissions of all other accounts from it.
_SYSTEM_DIRECTORIES = frozenset(
    ("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin",
     "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/var/opt", "/var/run",  # noqa: S108
     "/var/tmp")  # noqa: S108
)  # fmt: skip


class InvalidEnvironment(ValueError):
    """The value of a variable is not allowed. The message names the variable."""


@dataclass(frozen=True)
class StackEnvironment:
    """The configuration of all parts. `variables` extends our environment for every child process."""

    var: Path
    external: tuple[ExternalPart, ...]
    ports: Mapping[str, int]
    postgres: PostgresServer | None
    redis: RedisServer | None
    zookeeper: ZooKeeperServer | None
    variables: Mapping[str, str]
    jobmanager_token: str = field(default="", repr=False)

    @property
    def web_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['web']}"

    @property
    def jobmanager_url(self) -> str:
        return self.variables["WAYMARK_EMBEDDED_CLUSTER_URL"]

    def is_external(self, name: str) -> bool:
        return any(part.name == name for part in self.external)


def var_directory(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("WAYMARK_VAR") or BASE_DIRECTORY / "var").absolute()


def create_var(var: Path) -> None:
    """Create `var` so that only our account can enter it. An existing directory gets the same permissions.

    If Waymark runs as root, PostgreSQL's account may enter too.

    Raises:
        InvalidEnvironment: `var` is a directory that all accounts need.
    """
    if str(var) in _SYSTEM_DIRECTORIES:
        raise InvalidEnvironment(f"WAYMARK_VAR: '{var}' is not allowed; use a directory that only Waymark uses")
    var.mkdir(mode=0o700, parents=True, exist_ok=True)
    if var.stat().st_uid != os.geteuid():
        return  # only its owner may change the permissions; `doctor` warns about them
    user = server_user()
    if user is not None:
        os.chown(var, -1, user)
    var.chmod(0o700 if user is None else 0o710)


def external_parts(environ: Mapping[str, str]) -> tuple[ExternalPart, ...]:
    """Return the parts that run elsewhere by `environ`. `NAME_FILE` counts like `NAME`."""
    parts = []
    for name, variable in EXTERNAL_VARIABLES.items():
        value = environ.get(variable)
        if environ.get(f"{variable}_FILE"):
            value = f"(from {environ[f'{variable}_FILE']})"
        if value:
            parts.append(ExternalPart(name, without_password(value), variable))
    return tuple(parts)


def without_password(address: str) -> str:
    """Return `address` with any password masked, because it is displayed and written to files."""
    try:
        url = urlsplit(address)
    except ValueError:
        return "(not a URL)"
    if not url.scheme or url.password is None:
        return address
    user, _, host = url.netloc.rpartition("@")
    return url._replace(netloc=f"{user.split(':')[0]}:***@{host}").geturl()


def build(environ: Mapping[str, str], var: Path, java: JavaInstallation) -> StackEnvironment:
    """Choose ports, create secrets, and return the configuration of all parts. No process is started."""
    external = external_parts(environ)
    outside = {part.name for part in external}
    book = PortBook(var / "ports.json")
    ports = {name: book.choose(name, _preferred(name, environ)) for name in PREFERRED_PORTS if name not in outside}

    variables = {
        "WAYMARK_VAR": str(var),
        "JAVA_HOME": str(java.home),
        "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "WAYMARK_PUBLIC_URL": environ.get("WAYMARK_PUBLIC_URL") or f"http://{LOOPBACK}:{ports['web']}",
        **_create_once(environ, "WAYMARK_SECRET_KEY", var / "secret-key"),
    }
    postgres = None if "postgres" in outside else _postgres(var)
    redis = None if "redis" in outside else RedisServer(var / "redis", ports["redis"])
    zookeeper = None if "zookeeper" in outside else _zookeeper(var, ports["zookeeper"], java)
    if postgres:
        variables["DATABASE_URL"] = postgres.dsn()
    if redis:
        variables["REDIS_URL"] = redis.url
    if zookeeper:
        variables |= _zookeeper_variables(var, zookeeper)
    if "jobmanager" in outside:
        variables["WAYMARK_EMBEDDED_CLUSTER_URL"] = secret_of(environ, EXTERNAL_VARIABLES["jobmanager"])
    else:
        variables |= {
            **_create_once(environ, JOBMANAGER_TOKEN, var / OWN_TOKEN),
            "WAYMARK_JOBMANAGER_PORT": str(ports["jobmanager"]),
            "WAYMARK_JOBMANAGER_STATE": environ.get("WAYMARK_JOBMANAGER_STATE") or str(var / "jobmanager"),
            "WAYMARK_EMBEDDED_CLUSTER_URL": f"http://{LOOPBACK}:{ports['jobmanager']}",
            "WAYMARK_HISTORY_PIPELINE": environ.get("WAYMARK_HISTORY_PIPELINE") or "on",
        }
    if "mail" not in outside:
        password = _create_secret_file(var / "mail-password").read_text()
        variables |= {"EMAIL_URL": f"smtp://waymark:{password}@{LOOPBACK}:{ports['mail']}", "WAYMARK_MAILBOX": "1"}
    # The demo receives webhooks on this machine, and by default channels may not connect to this machine.
    allowed = (environ.get("WAYMARK_OUTBOUND_ALLOW"), f"{LOOPBACK}:{ports['demo-service']}")
    variables["WAYMARK_OUTBOUND_ALLOW"] = ",".join(filter(None, allowed))
    token = secret_of({**environ, **variables}, JOBMANAGER_TOKEN)
    return StackEnvironment(var, external, ports, postgres, redis, zookeeper, variables, token)


def _preferred(name: str, environ: Mapping[str, str]) -> int:
    variable = _PORT_VARIABLES.get(name, "")
    text = environ.get(variable, "")
    if not text:
        return PREFERRED_PORTS[name]
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InvalidEnvironment(f"{variable}: {text!r} is not allowed; a port number from 1 to 65535")
    return int(text)


def _create_once(environ: Mapping[str, str], variable: str, secret_file: Path) -> dict[str, str]:
    """Return the variable with `secret_file`, which has a generated secret, or {} if the caller has set one."""
    if environ.get(variable) or environ.get(f"{variable}_FILE"):
        return {}
    return {f"{variable}_FILE": str(_create_secret_file(secret_file))}


def _create_secret_file(secret_file: Path) -> Path:
    if not secret_file.exists():
        write_private(secret_file, secrets.token_urlsafe(50))
    return secret_file


def secret_of(environ: Mapping[str, str], variable: str) -> str:
    """Return the variable's value, or the content of the file in `<variable>_FILE`.

    Raises:
        InvalidEnvironment: The file cannot be read.
    """
    file = environ.get(f"{variable}_FILE")
    if environ.get(variable) or not file:
        return environ.get(variable, "")
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise InvalidEnvironment(f"{variable}_FILE: {file!r} is not allowed; {error.strerror}") from error


def _postgres(var: Path) -> PostgresServer:
    home = var / "postgres"
    user = server_user()
    if user is not None and (home.is_symlink() or not is_reachable(var, user)):
        # PostgreSQL does not run as root, and its account cannot enter this directory: store the data elsewhere.
        linked, home = home, Path("/var/lib/waymark") / _short_name(var) / "postgres"
        if not linked.exists() and not linked.is_symlink():
            linked.symlink_to(home)
    socket_directory = home / "socket"
    if len(os.fsencode(socket_directory)) > _LONGEST_SOCKET_DIRECTORY:
        socket_directory = Path(tempfile.gettempdir()) / f"waymark-{os.geteuid()}-{_short_name(var)}"
    return PostgresServer(home, socket_directory=socket_directory)


def _zookeeper(var: Path, port: int, java: JavaInstallation) -> ZooKeeperServer:
    home = var / "zookeeper"
    home.mkdir(mode=0o700, exist_ok=True)
    password_file = _create_secret_file(home / "password")
    return ZooKeeperServer(home, port, java.home, password_file=password_file)


def _zookeeper_variables(var: Path, server: ZooKeeperServer) -> dict[str, str]:
    """Override variables that the caller has set for another ensemble. The empty password selects the file."""
    return {
        "ZOOKEEPER_HOSTS": server.address,
        "WAYMARK_ZOOKEEPER_AUTHENTICATION": "sasl",
        "WAYMARK_ZOOKEEPER_USERNAME": USER,
        "WAYMARK_ZOOKEEPER_PASSWORD": "",
        "WAYMARK_ZOOKEEPER_PASSWORD_FILE": str(var / "zookeeper" / "password"),
        "WAYMARK_ZOOKEEPER_TLS": "false",
    }


def _short_name(var: Path) -> str:
    return hashlib.sha256(os.fsencode(var)).hexdigest()[:12]
