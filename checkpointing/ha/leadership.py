"""Who leads: the election's and the retrieval's contracts, and the standalone ones."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Protocol

from checkpointing.ha.errors import LeadershipLost


@dataclass(frozen=True)
class LeaderInformation:
    """`address` is the leader's REST base URL, `session_id` the random UUID of its term: it fences every message."""

    address: str
    session_id: str

    def encode(self) -> bytes:
        return json.dumps({"address": self.address, "session_id": self.session_id}).encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderInformation | None:
        """None when nobody, or something else, is published."""
        try:
            fields = json.loads(data)
            return cls(str(fields["address"]), str(fields["session_id"]))
        except (ValueError, KeyError, TypeError):
            return None


class LeaderContender(Protocol):
    """Told about its leadership, in order, on a thread of the election's, one call at a time.

    A call may use the election (confirm, close); a slow one delays the next, never the loss of leadership itself.
    """

    def grant_leadership(self, session_id: str) -> None:
        """A new term begins: prepare, then confirm with the address. Not called when the term is over already.

        A contender that cannot lead raises any exception: the election ends the term, revokes the leadership and lets
        every other contender lead before this one.
        """
        ...

    def revoke_leadership(self) -> None:
        """The term granted last is over. An exception is fatal: see `on_fatal_error`."""
        ...

    def on_error(self, error: Exception) -> None:
        """Something is wrong in ZooKeeper; the election retries by itself."""
        ...

    def on_fatal_error(self, error: Exception) -> None:
        """The election or the contender is broken: end the process, and with it the session and its claim to lead.

        May be called on any thread of the election's.
        """
        ...


class LeaderElection(Protocol):
    """One contender, one election, started once."""

    def start(self, contender: LeaderContender) -> None: ...

    def confirm_leadership(self, session_id: str, address: str) -> bool:
        """Publish where the leader is found. False, nothing published, when `session_id` is not the current term."""
        ...

    def has_leadership(self, session_id: str) -> bool:
        """Whether `session_id` is the current term, now. Cheap; true only while certainly no other one can lead."""
        ...

    def confirm_term(self, session_id: str) -> None:
        """For an act that no fence protects, right before it: LeadershipLost unless `session_id` is the current term.

        Blocking: the quorum has just confirmed it. ConnectionUnavailable when it does not answer.
        """
        ...

    @property
    def fence(self) -> str | None:
        """A node that exists only during the current term, for writes that must not outlive it.

        None where nothing can be fenced (standalone, or not started); LeadershipLost when another one may lead.
        """
        ...

    def close(self) -> None:
        """Give up: the contender is revoked if it led, published information goes. Final."""
        ...


class LeaderRetrieval(Protocol):
    """Finds the leader. Blocking."""

    def current(self) -> LeaderInformation | None:
        """None while there is no leader, or none can be asked for."""
        ...

    def wait(self, timeout_s: float, *, other_than: str | None = None) -> LeaderInformation | None:
        """The leader, as soon as there is one whose session id is not `other_than`; None when the time is over."""
        ...

    def close(self) -> None: ...


class ElectionClosed(RuntimeError):
    """The election was started twice, or after it was closed."""


class StandaloneLeaderElection:
    """The only job manager leads from the start, in `start` itself, on the caller's thread."""

    def __init__(self) -> None:
        self._contender: LeaderContender | None = None
        self._session_id: str | None = None
        self._closed = False
        self.information: LeaderInformation | None = None

    fence: str | None = None

    def start(self, contender: LeaderContender) -> None:
        if self._contender is not None or self._closed:
            raise ElectionClosed("an election is started once")
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
    """Within the job manager's own process; a driver has the address in its specification."""

    def __init__(self, election: StandaloneLeaderElection) -> None:
        self._election = election

    def current(self) -> LeaderInformation | None:
        return self._election.information

    def wait(self, timeout_s: float, *, other_than: str | None = None) -> LeaderInformation | None:
        """There is one leader and there will be no other: no reason to wait."""
        information = self.current()
        return information if information is None or information.session_id != other_than else None

    def close(self) -> None:
        """Nothing is held."""
