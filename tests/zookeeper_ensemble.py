"""Real ZooKeeper servers that a test can kill and restart."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from dashboard.stack.ports import LOOPBACK, several_free
from dashboard.stack.zookeeper import find_jars
from tests.waiting import eventually


class ZooKeeperEnsemble:
    """`count` ZooKeeper servers on loopback. Each has its own directory, so a restarted server has its data again."""

    def __init__(self, directory: Path, java_home: Path, count: int) -> None:
        self._directory = directory
        self._java = java_home / "bin" / "java"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = several_free(3 * count)
        self._ports = ports[:count]
        peers = list(zip(ports[count : 2 * count], ports[2 * count :], strict=True))
        for index, port in enumerate(self._ports):
            self._configure(index, port, peers if count > 1 else [])

    @property
    def hosts(self) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self._ports)

    @property
    def running(self) -> list[int]:
        return sorted(self._processes)

    def start(self) -> None:
        for index in range(len(self._ports)):
            self.start_server(index)
        for index in self.running:
            self.wait_until_serving(index)

    def start_server(self, index: int) -> None:
        home = self._directory / str(index)
        with (home / "log").open("ab") as log:
            self._processes[index] = subprocess.Popen(
                [
                    str(self._java),
                    *("-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-Dzookeeper.jmx.log4j.disable=true", "-cp", os.pathsep.join(map(str, find_jars()))),
                    *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(home / "zoo.cfg")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, index: int) -> None:
        """Kill a server with SIGKILL, so that it closes no connection itself."""
        process = self._processes.pop(index)
        process.kill()
        process.wait()

    def mend(self) -> None:
        """Restart the killed servers."""
        missing = [index for index in range(len(self._ports)) if index not in self._processes]
        for index in missing:
            self.start_server(index)
        for index in missing:
            self.wait_until_serving(index)

    def stop(self) -> None:
        for index in self.running:
            self.kill(index)

    def leader(self) -> int:
        """Wait until a server leads the others, and return its index."""

        def found() -> list[int]:
            return [index for index in self.running if self.mode(index) in ("leader", "standalone")]

        return eventually("a server leads the others", found)[0]

    def mode(self, index: int) -> str:
        """Return leader, follower or standalone, or "" if the server does not serve."""
        try:
            with socket.create_connection((LOOPBACK, self._ports[index]), timeout=2) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""
        return next((line.split(": ")[1] for line in answer.splitlines() if line.startswith("Mode: ")), "")

    def wait_until_serving(self, index: int, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.mode(index):
            assert self._processes[index].poll() is None, f"ZooKeeper server {index} has exited"
            assert time.monotonic() < deadline, f"ZooKeeper server {index} does not serve after {timeout_s} s"
            time.sleep(0.1)

    def _configure(self, index: int, port: int, peers: list[tuple[int, int]]) -> None:
        data = self._directory / str(index) / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(index))
        settings = [
            f"dataDir={data}",
            f"clientPort={port}",
            f"clientPortAddress={LOOPBACK}",
            *(
                "tickTime=500",
                "initLimit=20",
                "syncLimit=10",
                "maxSessionTimeout=60000",
                "admin.enableServer=false",
                "4lw.commands.whitelist=srvr",
            ),
            *(f"server.{peer}={LOOPBACK}:{quorum}:{election}" for peer, (quorum, election) in enumerate(peers)),
        ]
        (self._directory / str(index) / "zoo.cfg").write_text("\n".join(settings) + "\n")
