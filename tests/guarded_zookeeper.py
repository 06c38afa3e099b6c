"""A real ZooKeeper with access control: SASL log-in, and a port with mutual TLS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dashboard.stack.ports import LOOPBACK
from dashboard.stack.process import Command
from dashboard.stack.zookeeper import ZooKeeperServer, find_jars

USER, PASSWORD = "waymark", "let-me-in"


class GuardedZooKeeper(ZooKeeperServer):
    """A ZooKeeper server with SASL and TLS. `address` is the port without TLS, `secure` the port with TLS.

    `key_store` (key and chain) and `trust_store` are PEM files.
    """

    def __init__(self, home: Path, ports: list[int], java_home: Path, *, key_store: Path, trust_store: Path) -> None:
        super().__init__(home, ports[0], java_home, tick_ms=500)
        self._secure_port = ports[1]
        self._stores = key_store, trust_store
        self._files = home.absolute()

    @property
    def secure(self) -> str:
        return f"localhost:{self._secure_port}"

    def prepare(self) -> None:
        super().prepare()
        key_store, trust_store = self._stores
        settings = {
            "secureClientPort": self._secure_port,
            "secureClientPortAddress": LOOPBACK,
            "ssl.keyStore.location": key_store,
            "ssl.trustStore.location": trust_store,
            "ssl.clientAuth": "need",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        }
        with (self._files / "zoo.cfg").open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())
        login = "org.apache.zookeeper.server.auth.DigestLoginModule"
        (self._files / "jaas.conf").write_text(f'Server {{ {login} required user_{USER}="{PASSWORD}"; }};\n')

    def command(self) -> Command:
        command = super().command()
        java, *rest = command.argv
        paths = rest.index("-cp") + 1
        netty = sorted(str(path) for path in find_jars()[0].parent.glob("netty-*.jar") if "linux" not in path.name)
        rest[paths] = ":".join([rest[paths], *netty])
        added = (
            f"-Djava.security.auth.login.config={self._files}/jaas.conf",
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        )
        return replace(command, argv=(java, *added, *rest))
