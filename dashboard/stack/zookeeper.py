"""ZooKeeper as a child process, run from the jars that PySpark ships."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

from dashboard.stack.extras import PYSPARK, missing_text
from dashboard.stack.ports import LOOPBACK
from dashboard.stack.process import Command, ServerFailed
from dashboard.stack.record import write_private

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# metrics-core and snappy-java are needed: without the latter connections hang with no word in the log. A server that
# asks for a log-in loads Netty's TLS classes, whether it uses TLS or not.
_JARS = (
    "zookeeper-3*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*",
    "log4j-slf4j2-impl-*", "log4j-api-2*", "log4j-core-*", "netty-handler-4*", "netty-common-*", "netty-buffer-*",
)  # fmt: skip
_SERVING = "Zookeeper version:"
# Two loggers print a stack trace each time a client dies, and when `srvr` is asked while the server starts.
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
    """ZooKeeper's own jar and what it needs, by name. Raises ServerFailed, which names what is missing."""
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
    """One standalone server on loopback, its data in `home`, run by the Java in `java_home`.

    `password_file`: only sessions that log in as USER (SASL with DIGEST-MD5) are served; None: every local account is.
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
        return self._ask("srvr").startswith(_SERVING)

    def version(self) -> str:
        return self._ask("srvr").partition("\n")[0].removeprefix(_SERVING).strip().split("-")[0]

    def _ask(self, word: str) -> str:
        """The answer to a four-letter word, "" when there is none."""
        return ask(LOOPBACK, self._port, word)


def ask(host: str, port: int, word: str) -> str:
    """What the ZooKeeper server there answers to a four-letter word; "" when it does not."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace").strip()
    except OSError:
        return ""
