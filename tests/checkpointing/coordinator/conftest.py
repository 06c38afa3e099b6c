from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.checkpointing.doubles import CoordinatorHarness


@pytest.fixture
def harness() -> CoordinatorHarness:
    """Return a coordinator that runs one checkpoint at a time, none periodically, and does its I/O at once."""
    return CoordinatorHarness()


@pytest.fixture
def make_harness() -> Callable[..., CoordinatorHarness]:
    return CoordinatorHarness
