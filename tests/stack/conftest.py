"""One running product for each module of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.product import ROOT, Stack, start


@pytest.fixture(scope="module")
def stack(session_directory: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    directory = session_directory / request.module.__name__.rpartition(".")[2]
    directory.mkdir()
    directory.chmod(0o711)
    running = start(directory)
    yield running
    running.keep_logs(ROOT / "var" / "test" / directory.name)
    if running.process.poll() is None:
        assert running.stop() == 0
