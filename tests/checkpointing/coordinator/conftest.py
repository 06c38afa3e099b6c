from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.checkpointing.doubles import CoordinatorHarness


@pytest.fixture
def harness() -> CoordinatorHarness:
    """A coordinator without periodic checkpoints, one at a time, whose I/O happens at once."""
    return CoordinatorHarness()


@pytest.fixture
def make_harness() -> Callable[..., CoordinatorHarness]:
    return CoordinatorHarness
