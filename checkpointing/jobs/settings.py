"""The job manager's settings: read from the environment, typed, and checked together.

Any variable may come from a file instead: `NAME_FILE` holds the path (for secrets).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from checkpointing.ha.services import DEFAULT_CLUSTER_ID, DEFAULT_ROOT, DEFAULT_SESSION_TIMEOUT_S, HighAvailabilityMode
from checkpointing.ha.zookeeper_access import opened
from checkpointing.jobs.launching.deployment import MASTER, LauncherKind, deployment_of, is_loopback
from checkpointing.jobs.launching.environment import check_entry
from checkpointing.jobs.launching.kubernetes.api import ApiAccess, is_installed
from checkpointing.jobs.loop import DEFAULT_SILENCE_S
from checkpointing.jobs.secret_keys import SETTING as SECRET_KEYS
from checkpointing.jobs.secret_keys import check_key
from checkpointing.model.configuration import InvalidConfiguration, memory_bytes
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles, ZooKeeperScheme
from checkpointing.storage.errors import StorageError
from checkpointing.storage.locations import as_absolute, canonical
from checkpointing.storage.opening import files_for
from checkpointing.storage.roots import SavepointRoots

_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class DriversOnShutdown(Enum):
    """Whether a graceful end of the job manager ends its drivers, or leaves them to the next job manager."""

    STOP = "stop"
    LEAVE = "leave"


class InvalidSettings(ValueError):
    """Some variables have values that are not allowed. `problems` names variable, value and what is allowed."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class JobManagerSettings:
    """The settings.

    `state_directory` holds programs and the jobs' work directories; job managers of one cluster share it.

    `driver_memory` (bytes), `driver_limit` (their number; 0: no limit) and `driver_starts` limit what drivers use on
    this machine. If one is None, `launching/machine.py` derives it.
    """

    host: str
    port: int
    more_hosts: tuple[str, ...]
    state_directory: Path
    checkpoint_directory: str
    savepoint_directory: str
    more_savepoint_roots: tuple[str, ...]
    high_availability: HighAvailabilityMode
    zookeeper_hosts: str
    zookeeper_root: str
    cluster_id: str
    zookeeper_session_timeout_s: float
    zookeeper_access: ZooKeeperAccessFiles | None
    zookeeper_password: str
    token: str | None
    token_file: Path | None
    advertised_address: str
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    reconcile_window_s: float
    registration_timeout_s: float
    cancel_timeout_s: float
    storage_timeout_s: float
    history_size: int
    completed_jobs: int
    drivers_on_shutdown: DriversOnShutdown
    max_upload_bytes: int
    spark_master: str
    storage_is_shared: bool
    spare_drivers: int
    program_environment: tuple[str, ...]
    program_retention_s: float
    environment_directory: Path
    environment_timeout_s: float
    environment_retention_s: float
    max_environment_bytes: int
    driver_memory: int | None
    driver_limit: int | None
    driver_starts: int | None
    secret_keys: tuple[str, ...] = field(repr=False)
    launcher: LauncherKind
    kubernetes: ApiAccess | None
    pod_start_timeout_s: float

    @property
    def savepoint_roots(self) -> SavepointRoots:
        """Return the roots where savepoints may be written and disposed of. Running jobs' checkpoints are elsewhere."""
        return SavepointRoots(list(dict.fromkeys((self.savepoint_directory, *self.more_savepoint_roots))))

    @property
    def restore_roots(self) -> SavepointRoots:
        """Return the roots from which a job may be restored: those of savepoints, and that of retained checkpoints."""
        return SavepointRoots([*self.savepoint_roots.roots, self.checkpoint_directory])

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> JobManagerSettings:
        """Return the settings in `environ`. Raise InvalidSettings with all problems if there are any."""
        read = _Reader(environ)
        state = read.directory("WAYMARK_JOBMANAGER_STATE", Path(environ.get("WAYMARK_VAR", "var")) / "jobmanager")
        host = read.text("WAYMARK_JOBMANAGER_HOST", "127.0.0.1")
        port = read.whole("WAYMARK_JOBMANAGER_PORT", 8081, least=0, most=65535)
        hosts = read.text("ZOOKEEPER_HOSTS", "")
        mode = read.choice(
            "WAYMARK_HIGH_AVAILABILITY",
            HighAvailabilityMode,
            HighAvailabilityMode.ZOOKEEPER if hosts else HighAvailabilityMode.NONE,
        )
        if mode is HighAvailabilityMode.ZOOKEEPER and not hosts:
            read.problems.append(
                "ZOOKEEPER_HOSTS: '' is not allowed with WAYMARK_HIGH_AVAILABILITY=ZOOKEEPER; host:port,…"
            )
        interval = read.seconds("WAYMARK_HEARTBEAT_INTERVAL", 2.0)
        timeout = read.seconds("WAYMARK_HEARTBEAT_TIMEOUT", 20.0)
        if timeout <= interval:
            read.problems.append(
                f"WAYMARK_HEARTBEAT_TIMEOUT: {timeout:g} is not allowed; "
                f"more than WAYMARK_HEARTBEAT_INTERVAL ({interval:g})"
            )
        token = read.text("WAYMARK_JOBMANAGER_TOKEN", "") or None
        if token is None and read.is_from_file("WAYMARK_JOBMANAGER_TOKEN"):
            path = environ["WAYMARK_JOBMANAGER_TOKEN_FILE"]
            read.problems.append(f"WAYMARK_JOBMANAGER_TOKEN_FILE: {path!r} is not allowed; a file that holds a token")
        elif token is None and not is_loopback(f"//[{host}]" if ":" in host else f"//{host}"):
            read.problems.append(
                f"WAYMARK_JOBMANAGER_HOST: {host!r} is not allowed without WAYMARK_JOBMANAGER_TOKEN or "
                "WAYMARK_JOBMANAGER_TOKEN_FILE, because everyone who reaches it could run programs here; "
                "set a token, or a loopback address such as 127.0.0.1"
            )
        settings = cls(
            host=host,
            port=port,
            more_hosts=read.hosts("WAYMARK_JOBMANAGER_HOSTS"),
            state_directory=state,
            checkpoint_directory=read.location("WAYMARK_CHECKPOINT_DIR", state / "checkpoints"),
            savepoint_directory=read.location("WAYMARK_SAVEPOINT_DIR", state / "savepoints"),
            more_savepoint_roots=read.locations("WAYMARK_SAVEPOINT_ROOTS"),
            high_availability=mode,
            zookeeper_hosts=hosts,
            zookeeper_root=read.text("WAYMARK_ZOOKEEPER_ROOT", DEFAULT_ROOT),
            cluster_id=read.text("WAYMARK_CLUSTER_ID", DEFAULT_CLUSTER_ID),
            zookeeper_session_timeout_s=read.seconds("WAYMARK_ZOOKEEPER_SESSION_TIMEOUT", DEFAULT_SESSION_TIMEOUT_S),
            zookeeper_access=read.zookeeper_access("WAYMARK_ZOOKEEPER"),
            zookeeper_password=read.text("WAYMARK_ZOOKEEPER_PASSWORD", ""),
            token=token,
            token_file=Path(environ["WAYMARK_JOBMANAGER_TOKEN_FILE"])
            if read.is_from_file("WAYMARK_JOBMANAGER_TOKEN")
            else None,
            advertised_address=read.text("WAYMARK_JOBMANAGER_ADDRESS", ""),
            heartbeat_interval_s=interval,
            heartbeat_timeout_s=timeout,
            reconcile_window_s=read.seconds("WAYMARK_RECONCILE_WINDOW", 15.0),
            registration_timeout_s=read.seconds("WAYMARK_REGISTRATION_TIMEOUT", 120.0),
            cancel_timeout_s=read.seconds("WAYMARK_CANCEL_TIMEOUT", 30.0),
            storage_timeout_s=read.seconds("WAYMARK_STORAGE_TIMEOUT", DEFAULT_SILENCE_S),
            history_size=read.whole("WAYMARK_CHECKPOINT_HISTORY", 10, least=0),
            completed_jobs=read.whole("WAYMARK_COMPLETED_JOBS", 50, least=1),
            drivers_on_shutdown=read.choice("WAYMARK_DRIVERS_ON_SHUTDOWN", DriversOnShutdown, DriversOnShutdown.STOP),
            max_upload_bytes=read.whole("WAYMARK_MAX_UPLOAD_BYTES", 104_857_600, least=1),
            spark_master=read.spark_master("SPARK_MASTER_URL"),
            storage_is_shared=read.boolean("WAYMARK_SHARED_STORAGE"),
            spare_drivers=read.whole("WAYMARK_SPARE_DRIVERS", 0, least=0),
            program_environment=read.variables("WAYMARK_PROGRAM_ENVIRONMENT"),
            program_retention_s=read.seconds("WAYMARK_PROGRAM_RETENTION", 86_400.0),
            environment_directory=read.directory("WAYMARK_ENVIRONMENT_DIR", state / "environments"),
            environment_timeout_s=read.seconds("WAYMARK_ENVIRONMENT_TIMEOUT", 1800.0),
            environment_retention_s=read.seconds("WAYMARK_ENVIRONMENT_RETENTION", 604_800.0),
            max_environment_bytes=read.whole("WAYMARK_MAX_ENVIRONMENT_BYTES", 10 << 30, least=1),
            secret_keys=read.keys(SECRET_KEYS),
            driver_memory=read.size("WAYMARK_DRIVER_MEMORY"),
            driver_limit=read.optional_whole("WAYMARK_DRIVER_LIMIT", least=0),
            driver_starts=read.optional_whole("WAYMARK_DRIVER_STARTS", least=1),
            launcher=read.choice("WAYMARK_LAUNCHER", LauncherKind, LauncherKind.PROCESS),
            kubernetes=read.kubernetes(),
            pod_start_timeout_s=read.seconds("WAYMARK_POD_START_TIMEOUT", 600.0),
        )
        if settings.launcher is LauncherKind.KUBERNETES and settings.kubernetes is None:
            read.problems.append(
                "WAYMARK_LAUNCHER: 'kubernetes' is not allowed outside a Kubernetes cluster without "
                "WAYMARK_KUBERNETES_API; set it to the address of the API, such as https://kubernetes.internal:6443"
            )
        if settings.launcher is LauncherKind.KUBERNETES and not is_installed():
            read.problems.append(
                "WAYMARK_LAUNCHER: 'kubernetes' is not allowed without the extra kubernetes; "
                "run uv pip install -r pyproject.toml --extra kubernetes"
            )
        if read.problems:
            raise InvalidSettings(tuple(read.problems))
        return settings


class _Reader:
    """Reads variables and collects all problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def is_from_file(self, name: str) -> bool:
        return not self._environ.get(name) and bool(self._environ.get(f"{name}_FILE"))

    def text(self, name: str, default: str) -> str:
        if not self.is_from_file(name):
            return self._environ.get(name, default).strip()
        path = self._environ[f"{name}_FILE"]
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            self.problems.append(f"{name}_FILE: {path!r} is not allowed; a file that can be read ({error.strerror})")
            return default

    def directory(self, name: str, default: Path) -> Path:
        return Path(self.text(name, "") or default).absolute()

    def location(self, name: str, default: Path) -> str:
        """Return a path, or an address of a storage that this process can open."""
        return self._location(name, self.text(name, "") or str(default))

    def locations(self, name: str) -> tuple[str, ...]:
        """Return locations from a list that is separated by commas."""
        return tuple(self._location(name, part.strip()) for part in self.text(name, "").split(",") if part.strip())

    def _location(self, name: str, text: str) -> str:
        try:
            location = canonical(as_absolute(text))
            files_for(location)
            return location
        except StorageError as error:
            self.problems.append(f"{name}: this location is not allowed; {error}")
            return text

    def hosts(self, name: str) -> tuple[str, ...]:
        """Return host names from a list that is separated by commas. Each may have a port."""
        found = [part.strip().lower() for part in self.text(name, "").split(",") if part.strip()]
        wrong = [part for part in found if not _HOST.fullmatch(part)]
        if wrong:
            self.problems.append(f"{name}: {wrong[0]!r} is not allowed; write names: flink.example, flink.example:8443")
        return tuple(found)

    def variables(self, name: str) -> tuple[str, ...]:
        """Return names of environment variables, separated by commas; `MYAPP_*` is a prefix."""
        found = tuple(part.strip() for part in self.text(name, "").split(",") if part.strip())
        for part in found:
            try:
                check_entry(part)
            except ValueError:
                allowed = "names of variables that are not Waymark's own, such as MYAPP_TOKEN or MYAPP_*"
                self.problems.append(f"{name}: {part!r} is not allowed; {allowed}")
        return found

    def keys(self, name: str) -> tuple[str, ...]:
        """Return encryption keys from a list that is separated by commas. No message shows a key."""
        found = tuple(part.strip() for part in self.text(name, "").split(",") if part.strip())
        for number, key in enumerate(found, 1):
            try:
                check_key(key)
            except ValueError:
                self.problems.append(f"{name}: key {number} is not allowed; `manage.py secrets new-key` prints one")
        return found

    def whole(self, name: str, default: int, *, least: int, most: int | None = None) -> int:
        allowed = f"a whole number, at least {least}" + (f", at most {most}" if most is not None else "")
        value = self._parsed(name, default, int, allowed)
        if value < least or (most is not None and value > most):
            self.problems.append(f"{name}: {value} is not allowed; {allowed}")
        return value

    def optional_whole(self, name: str, *, least: int) -> int | None:
        """Return the number, or None if the variable is not set."""
        return self.whole(name, least, least=least) if self.text(name, "") else None

    def size(self, name: str) -> int | None:
        """Return bytes, or None if the variable is not set. 0 is allowed."""
        text = self.text(name, "")
        try:
            return memory_bytes(name, text) if text else None
        except InvalidConfiguration as error:
            self.problems.append(str(error))
            return None

    def seconds(self, name: str, default: float) -> float:
        allowed = "a number of seconds above 0"
        value = self._parsed(name, default, float, allowed)
        if not 0 < value < float("inf"):
            self.problems.append(f"{name}: {value} is not allowed; {allowed}")
        return value

    def choice(self, name: str, kind: type[E], default: E) -> E:
        return self._parsed(name, default, lambda text: _member(kind, text), " or ".join(item.value for item in kind))

    def boolean(self, name: str, *, default: bool = False) -> bool:
        return self._parsed(name, default, _boolean, "true or false")

    def spark_master(self, name: str) -> str:
        """Return the Spark master, or "" if the variable is not set."""
        master = self.text(name, "")
        try:
            return deployment_of({MASTER: master}).master if master else ""
        except InvalidConfiguration as error:
            self.problems.append(f"{name}: {error.value!r} is not allowed; {error.allowed}")
            return ""

    def kubernetes(self) -> ApiAccess | None:
        """Return the configured API, or that of the cluster in which this process is a pod, or None."""
        name, address = "WAYMARK_KUBERNETES_API", self.text("WAYMARK_KUBERNETES_API", "").rstrip("/")
        namespace = self.text("WAYMARK_KUBERNETES_NAMESPACE", "")
        try:
            own = ApiAccess.in_cluster(self._environ)
        except OSError as error:
            self.problems.append(f"{name}: the service account of this pod cannot be read ({error.strerror})")
            own = None
        if not address:
            return own if own is None or not namespace else replace(own, namespace=namespace)
        if not re.fullmatch(r"https?://[^\s/?#@]+", address):
            self.problems.append(
                f"{name}: {address!r} is not allowed; an address such as https://kubernetes.internal:6443"
            )
        token, authorities = (self.text(f"WAYMARK_KUBERNETES_{each}_FILE", "") for each in ("TOKEN", "CA"))
        for each in filter(None, (token, authorities)):
            if not Path(each).is_file():
                self.problems.append(f"{name}: {each!r} is not allowed as its token or CA; a file that can be read")
        return ApiAccess(
            address, Path(token) if token else None, Path(authorities) if authorities else None, namespace or "default"
        )

    def zookeeper_access(self, prefix: str) -> ZooKeeperAccessFiles | None:
        """Return the access to ZooKeeper, or None for anonymous access in plain text."""
        scheme = self.choice(f"{prefix}_AUTHENTICATION", ZooKeeperScheme, ZooKeeperScheme.NONE)
        uses_tls = self.boolean(f"{prefix}_TLS")
        username = self.text(f"{prefix}_USERNAME", "")
        password = f"{prefix}_PASSWORD"
        if scheme is not ZooKeeperScheme.NONE:
            for name, value in ((f"{prefix}_USERNAME", username), (password, self.text(password, ""))):
                if not value:
                    self.problems.append(f"{name}: '' is not allowed with {prefix}_AUTHENTICATION={scheme.value}")
        elif not uses_tls:
            return None
        access = ZooKeeperAccessFiles(
            scheme,
            username,
            self._environ[f"{password}_FILE"] if self.is_from_file(password) else None,
            uses_tls,
            *(self.text(f"{prefix}_TLS_{name}", "") or None for name in ("AUTHORITIES", "CERTIFICATE", "KEY")),
        )
        try:
            opened(replace(access, password_file=None))
        except OSError as error:
            self.problems.append(f"{prefix}_TLS_…: not allowed; PEM files that can be read and used ({error})")
        return access

    def _parsed(self, name: str, default: T, parse: Callable[[str], T], allowed: str) -> T:
        text = self.text(name, "")
        if not text:
            return default
        try:
            return parse(text)
        except ValueError:
            self.problems.append(f"{name}: {text!r} is not allowed; {allowed}")
            return default


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _member(kind: type[E], text: str) -> E:
    return next((item for item in kind if item.value.lower() == text.lower()), None) or kind(text)
