"""Choose ports on loopback: the usual port if it is free, else another, and after a restart the same port again."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
# The ports that this process has claimed until it ends, each with the descriptor of its claim. Without claims, two
# stacks that start at the same time could choose the same port.
_claimed: dict[int, int] = {}


def is_free(port: int, host: str = LOOPBACK) -> bool:
    with socket.socket() as probe:
        # Servers set SO_REUSEADDR too, so a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def any_free() -> int:
    return several_free(1)[0]


def several_free(count: int) -> list[int]:
    """Return different ports. If each was closed before the next is chosen, the system could give one twice."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]


def accepts(port: int, host: str = LOOPBACK, limit_s: float = 0.5) -> bool:
    """Return whether a server accepts connections on the port."""
    try:
        socket.create_connection((host, port), timeout=limit_s).close()
    except OSError:
        return False
    return True


class PortBook:
    """A file with the port of each part, so that addresses (and open browser tabs) are valid after a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports = self._read()

    def choose(self, name: str, preferred: int) -> int:
        """Return the first free port of these: the previous port of `name`, `preferred`, any port."""
        taken = {port for other, port in self._ports.items() if other != name}
        wanted = [self._ports[name]] if name in self._ports else []
        candidates = (port for port in (*wanted, preferred) if port not in taken and is_free(port) and _claim(port))
        self._ports[name] = next(candidates, None) or _any_but(taken)
        self._write()
        return self._ports[name]

    def _read(self) -> dict[str, int]:
        try:
            known = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return {str(name): port for name, port in known.items() if isinstance(port, int) and 0 < port < 65536}

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(self._ports, indent=1) + "\n")
        temporary.replace(self._path)


def _any_but(taken: set[int]) -> int:
    while (port := any_free()) in taken or not _claim(port):
        pass
    return port


def _claim(port: int) -> bool:
    """Claim a port, or return False if another process has claimed it.

    The claim is an abstract socket name, which the kernel frees when the process ends. Only Linux has such names; on
    other systems every claim succeeds.
    """
    if port in _claimed or sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0waymark-port-{port}")
    except OSError:
        claim.close()
        return False
    _claimed[port] = claim.detach()
    return True
