"""ZooKeeper as a child process, started from the jars in the PySpark package."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

from dashboard.stack.extras import PYSPARK, missing_text
from dashboard.stack.ports import LOOPBACK
from dashboard.stack.process import Command, ServerFailed
from dashboard.stack.record import write_private

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# ZooKeeper needs metrics-core and snappy-java: without snappy-java, connections hang and nothing is logged. A server
# that requires a log-in loads Netty's TLS classes even without TLS.
_JARS = (
    "zookeeper-3*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*",
    "log4j-slf4j2-impl-*", "log4j-api-2*", "log4j-core-*", "netty-handler-4*", "netty-common-*", "netty-buffer-*",
)  # fmt: skip
_SERVING = "Zookeeper version:"
# Two loggers would print a stack trace each time a client dies, and at each `srvr` request while the server starts.
_LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1} %m%n
logger.client.name = org.apache.zookeeper.server.NIOServerCnxn
logger.client.level = ERROR
logger.question.name = org.apache.zookeeper.server.ServerCnxn
logger.question.level = OFF
"""


_LOG_IN = {
    "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    "enforce.auth.enabled": "true",
    "enforce.auth.schemes": "sasl",
}
_JAAS = 'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{user}="{password}"; }};\n'


def find_jars() -> list[Path]:
    """Return the jars of ZooKeeper and of its dependencies.

    Raises:
        ServerFailed: A jar is missing. The message names it.
    """
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise ServerFailed(missing_text("The embedded ZooKeeper", [PYSPARK]))
    directory = Path(places[0]) / "jars"
    jars = []
    for pattern in _JARS:
        found = sorted(directory.glob(f"{pattern}.jar"))
        if not found:
            raise ServerFailed(f"{directory} holds no {pattern}.jar, which ZooKeeper needs.")
        jars.append(found[-1])
    return jars


USER = "waymark"


class ZooKeeperServer:
    """A standalone ZooKeeper server on loopback, with its data in `home` and the Java in `java_home`.

    With a `password_file`, clients must log in as USER (SASL with DIGEST-MD5). Without it, every local account has
    access.
    """

    name = "zookeeper"

    def __init__(
        self, home: Path, port: int, java_home: Path, *, tick_ms: int = 1000, password_file: Path | None = None
    ) -> None:
        self._home = home.absolute()
        self._port = port
        self._java = java_home / "bin" / "java"
        self._tick_ms = tick_ms
        self._password_file = password_file

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    def prepare(self) -> None:
        (self._home / "data").mkdir(parents=True, exist_ok=True)
        (self._home / "log4j2.properties").write_text(_LOGGING)
        settings = {
            "dataDir": self._home / "data",
            "clientPort": self._port,
            "clientPortAddress": LOOPBACK,
            "tickTime": self._tick_ms,
            "maxClientCnxns": 0,
            "maxSessionTimeout": 60_000,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,envi,mntr,stat,cons",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        if self._password_file is not None:
            settings |= _LOG_IN
            write_private(self._home / "jaas.conf", _JAAS.format(user=USER, password=self._password_file.read_text()))
        (self._home / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def command(self) -> Command:
        guard = (f"-Djava.security.auth.login.config={self._home}/jaas.conf",) if self._password_file else ()
        return Command(
            argv=(
                str(self._java),
                *guard,
                *("-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-Dzookeeper.jmx.log4j.disable=true", f"-Dlog4j2.configurationFile={self._home}/log4j2.properties"),
                *("-cp", ":".join(map(str, find_jars())), _MAIN_CLASS, str(self._home / "zoo.cfg")),
            ),
            directory=self._home,
        )

    def answers(self) -> bool:
        return self._send_command("srvr").startswith(_SERVING)

    def version(self) -> str:
        return self._send_command("srvr").partition("\n")[0].removeprefix(_SERVING).strip().split("-")[0]

    def _send_command(self, command: str) -> str:
        """Return the response to a four-letter command, or "" if there is none."""
        return send_command(LOOPBACK, self._port, command)


def send_command(host: str, port: int, command: str) -> str:
    """Return the response of a ZooKeeper server to a four-letter command, or "" if it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(command.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace").strip()
    except OSError:
        return ""
