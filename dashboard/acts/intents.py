"""The intent of an action, which is committed before the action sends its request to the engine."""

from __future__ import annotations

from collections.abc import Mapping


class Intent:
    """The intent of a call that is not repeated. dashboard/api/idempotency.py has a subclass for repeated calls.

    `earlier` is the intent of an earlier call that was interrupted after its request to the engine. Without such a
    call, it is None.
    """

    earlier: Mapping[str, int] | None = None

    def commit(self, **about: int) -> None:
        """Commit all writes so far, with the keys of the objects that the action is `about`.

        Do nothing here, because no transaction is open: the writes are already committed.
        """
