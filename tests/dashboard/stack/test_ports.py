from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.stack.ports import PortBook, any_free, several_free


@pytest.fixture
def book_path(tmp_path: Path) -> Path:
    return tmp_path / "ports.json"


def taken(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def test_several_free_ports_differ() -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        taken_port = first.getsockname()[1]
        ports = several_free(200)
    assert len({*ports, taken_port}) == 201


def test_the_preferred_port_is_taken_when_free(book_path: Path) -> None:
    port = any_free()
    assert PortBook(book_path).choose("web", port) == port


def test_another_port_is_taken_when_the_preferred_one_is_in_use(book_path: Path) -> None:
    port = any_free()
    with taken(port):
        assert PortBook(book_path).choose("web", port) != port


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is claimed elsewhere")
def test_concurrent_starts_get_different_ports(book_path: Path, tmp_path: Path) -> None:
    """Both choose their ports before either of them listens."""
    port = any_free()
    choose = f"print(PortBook(Path({str(tmp_path / 'other.json')!r})).choose('web', {port}), flush=True)"
    other = f"from pathlib import Path; from dashboard.stack.ports import PortBook; {choose}; input()"
    with subprocess.Popen(
        [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == port
        assert PortBook(book_path).choose("web", port) != port
        process.communicate("\n")
    book_path.unlink()
    assert PortBook(book_path).choose("web", port) == port


def test_a_later_start_keeps_the_port_of_the_first(book_path: Path) -> None:
    preferred = any_free()
    with taken(preferred):
        first = PortBook(book_path).choose("web", preferred)
    assert PortBook(book_path).choose("web", preferred) == first


def test_two_parts_never_get_the_same_port(book_path: Path) -> None:
    port = any_free()
    book = PortBook(book_path)
    assert book.choose("web", port) != book.choose("jobmanager", port)


def test_damaged_port_file_is_replaced(book_path: Path) -> None:
    book_path.write_text("{")
    port = any_free()
    assert PortBook(book_path).choose("web", port) == port
