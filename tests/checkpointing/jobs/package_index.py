"""Packages for pip: wheels without code, in a directory or on a server that may fail."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# The packages that a driver needs.
OURS = {
    "pyspark": "4.2.1", "py4j": "0.10.9.9", "fsspec": "2026.1.0", "kazoo": "2.11.0", "msgspec": "0.23.0",
    "websockets": "16.0",
}  # fmt: skip


def wheel(directory: Path, name: str, version: str, needs: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: sasl\n"
    metadata += f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def wheels(directory: Path, **more: str) -> Path:
    """Write wheels of the packages that drivers need, and of `more` packages by name and version."""
    for name, version in {**OURS, **more}.items():
        wheel(directory, name, version)
    return directory


def hash_of(path: Path) -> str:
    return f"--hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def pip_settings(**settings: str) -> dict[str, str]:
    """Return environment variables that give pip only `settings` and no retries."""
    none = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    return {**none, **{f"PIP_{name.upper()}": value for name, value in settings.items()}}


class Index:
    """A package index. It answers every request with `status`. After `hold`, requests wait."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.status = 200
        self.requests = 0
        self.gate = threading.Event()
        self.gate.set()
        self.url = ""

    def answer(self, path: str) -> tuple[int, bytes]:
        self.requests += 1
        self.gate.wait(120)
        if self.status != 200:
            return self.status, b"no"
        if path.startswith("/files/"):
            return 200, (self.directory / path.removeprefix("/files/")).read_bytes()
        project = path.strip("/").removeprefix("simple/")
        files = [file.name for file in self.directory.glob(f"{project}-*.whl")]
        links = "".join(f'<a href="/files/{name}">{name}</a>' for name in files)
        return (200, links.encode()) if files else (404, b"unknown")


@contextlib.contextmanager
def serving(index: Index) -> Iterator[Index]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = index.answer(self.path)
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple/"
    try:
        yield index
    finally:
        index.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


def set_all(monkeypatch: Any, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
