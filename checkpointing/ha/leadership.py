"""Leadership: the interfaces of the election and of the leader retrieval, and their standalone implementations."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Protocol

from checkpointing.ha.errors import LeadershipLost


@dataclass(frozen=True)
class LeaderInformation:
    """The leader.

    `address` is its REST base URL, `session_id` the random UUID of its term, which fences every message.
    """

    address: str
    session_id: str

    def encode(self) -> bytes:
        return json.dumps({"address": self.address, "session_id": self.session_id}).encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderInformation | None:
        """Decode the information. Return None if no leader, or something else, is published."""
        try:
            fields = json.loads(data)
            return cls(str(fields["address"]), str(fields["session_id"]))
        except (ValueError, KeyError, TypeError):
            return None


class LeaderContender(Protocol):
    """Gets calls about its leadership, in order, one at a time, on a thread of the election.

    A call may use the election (confirm, close). A slow call delays the next one, but never the loss of leadership
    itself.
    """

    def grant_leadership(self, session_id: str) -> None:
        """Prepare a new term, then confirm it with the address. Not called if the term is already over.

        A contender that cannot lead raises any exception. The election then ends the term, revokes the leadership and
        lets every other contender lead before this one.
        """
        ...

    def revoke_leadership(self) -> None:
        """End the last granted term. An exception is fatal: see `on_fatal_error`."""
        ...

    def on_error(self, error: Exception) -> None:
        """Report a problem in ZooKeeper. The election itself retries."""
        ...

    def on_fatal_error(self, error: Exception) -> None:
        """End the process, and with it the session and its leadership, because the election or the contender is broken.

        May be called on any thread of the election.
        """
        ...


class LeaderElection(Protocol):
    """An election with one contender, started once."""

    def start(self, contender: LeaderContender) -> None: ...

    def confirm_leadership(self, session_id: str, address: str) -> bool:
        """Publish the leader's address. Return False and publish nothing if `session_id` is not the current term."""
        ...

    def has_leadership(self, session_id: str) -> bool:
        """Return whether `session_id` is the current term.

        Fast. True only while certainly no other process can lead.
        """
        ...

    def confirm_term(self, session_id: str) -> None:
        """Raise LeadershipLost unless `session_id` is the current term. Call it right before an action without a fence.

        Blocks: the quorum confirms the term. Raise ConnectionUnavailable if the quorum does not answer.
        """
        ...

    @property
    def fence(self) -> str | None:
        """Return a node that exists only during the current term, for writes that must not outlive it.

        Return None if nothing can be fenced (standalone, or not started). Raise LeadershipLost if another process may
        lead.
        """
        ...

    def close(self) -> None:
        """Leave the election for good: revoke the contender if it led, and remove published information."""
        ...


class LeaderRetrieval(Protocol):
    """Finds the leader. All methods block."""

    def current(self) -> LeaderInformation | None:
        """Return the leader, or None if there is none or it is unknown."""
        ...

    def wait(self, timeout_s: float, *, other_than: str | None = None) -> LeaderInformation | None:
        """Return the leader as soon as there is one whose session ID is not `other_than`, or None after the timeout."""
        ...

    def close(self) -> None: ...


class ElectionClosed(RuntimeError):
    """The election was started twice, or after it was closed."""


class StandaloneLeaderElection:
    """An election in which the only job manager leads at once, in `start` itself, on the caller's thread."""

    def __init__(self) -> None:
        self._contender: LeaderContender | None = None
        self._session_id: str | None = None
        self._closed = False
        self.information: LeaderInformation | None = None

    fence: str | None = None

    def start(self, contender: LeaderContender) -> None:
        if self._contender is not None or self._closed:
            raise ElectionClosed("the election was already started or closed; it cannot be started again")
        self._contender = contender
        self._session_id = str(uuid.uuid4())
        contender.grant_leadership(self._session_id)

    def confirm_leadership(self, session_id: str, address: str) -> bool:
        if not self.has_leadership(session_id):
            return False
        self.information = LeaderInformation(address, session_id)
        return True

    def has_leadership(self, session_id: str) -> bool:
        return self._session_id is not None and session_id == self._session_id

    def confirm_term(self, session_id: str) -> None:
        if not self.has_leadership(session_id):
            raise LeadershipLost("this job manager has stopped")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        led, self._session_id, self.information = self._session_id is not None, None, None
        if led and self._contender is not None:
            self._contender.revoke_leadership()


class StandaloneLeaderRetrieval:
    """The retrieval within the job manager's own process. A driver has the address in its specification."""

    def __init__(self, election: StandaloneLeaderElection) -> None:
        self._election = election

    def current(self) -> LeaderInformation | None:
        return self._election.information

    def wait(self, timeout_s: float, *, other_than: str | None = None) -> LeaderInformation | None:
        """Return the leader without waiting, because the leader never changes."""
        information = self.current()
        return information if information is None or information.session_id != other_than else None

    def close(self) -> None:
        """Do nothing, because nothing is held."""
