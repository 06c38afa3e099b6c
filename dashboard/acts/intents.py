"""What an act is about to ask of an engine: written and committed before it asks, whatever comes of the call after."""

from __future__ import annotations

from collections.abc import Mapping


class Intent:
    """Of a call that comes once. One whose answer is kept under a key has its own: dashboard/api/idempotency.py.

    `earlier`: what a try before this one was about, which was cut off after it had asked; None: there was none.
    """

    earlier: Mapping[str, int] | None = None

    def commit(self, **about: int) -> None:
        """All that was written so far stays, and what the act is `about`. No transaction is open: it does already."""
