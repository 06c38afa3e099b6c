"""Find a cluster's leader by the node that its job managers write in ZooKeeper.

Flink's leader publishes `<root>/<cluster id>/leader/rest_server/connection_info` (before 1.15, and in its old layout,
`leader/rest_server_lock`): Java's serialization of the REST address, a UTF string, and of the term's UUID. Waymark's
job manager publishes the same node as JSON. Without a leader there is no node, or an empty one.

`LeaderWatch` reads the node in a separate thread, so that its callers get the newest sighting without waiting.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from checkpointing.ha.zookeeper_access import OPEN, ZooKeeperAccess, make_client
from monitoring import outbound
from monitoring.outbound import Denied
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

LONGEST_ADDRESS = 500  # the limit of the cluster's database field
PLACES = ("leader/rest_server/connection_info", "leader/rest_server_lock")
# The nodes with the jobs that a new leader starts: since Flink 2.0, and before.
JOB_PLACES = ("execution-plans", "jobgraphs")
_STREAM = b"\xac\xed\x00\x05"
# java.util.UUID: class description with its serial version and two longs, least significant bits first.
_UUID = b"sr\x00\x0ejava.util.UUID\xbc\x99\x03\xf7\x98m\x85/\x02\x00\x02J\x00\x0cleastSigBitsJ\x00\x0bmostSigBitsxp"
_NULL = b"p"
_RETRY_S = 2.0
_CONNECT_LIMIT_S = 10.0
_READ_LIMIT_S = 5.0
_SILENT_AFTER_S = 4.0
_SESSION_S = 10.0
# A watch without a reader ends after this time.
_IDLE_LIMIT_S = 600.0


class NotAnAddress(ValueError):
    """The node's content does not name a leader. `reason` describes the content."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class Quorum:
    """The ZooKeeper servers of a cluster, with its path and access.

    `root` and `cluster_id` are Flink's high-availability.zookeeper.path.root and high-availability.cluster-id.
    """

    hosts: str
    root: str
    cluster_id: str
    access: ZooKeeperAccess = OPEN
    gets_secrets: bool = False
    """Requests to the leader contain a token or a password. So only Waymark's user may be able to change its node."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(f"{self._base}/{place}" for place in PLACES)

    def job_paths(self, job_id: str) -> tuple[str, ...]:
        return tuple(f"{self._base}/{place}/{job_id}" for place in JOB_PLACES)

    @property
    def _base(self) -> str:
        return base_path(self.root, self.cluster_id)


def base_path(root: str, cluster_id: str) -> str:
    """Return the path of a cluster's nodes, "" for ZooKeeper's root. Flink accepts both with or without a slash."""
    return "".join(f"/{part.strip('/')}" for part in (root, cluster_id) if part.strip("/"))


@dataclass(frozen=True)
class Leader:
    address: str


@dataclass(frozen=True)
class Nobody:
    """No leader is known. `why` is the reason."""

    why: Reason | str


@dataclass(frozen=True)
class StoredJob:
    """The result of a look into Flink's job store. `is_led`: ZooKeeper also names a leader of the cluster.

    `why` is the reason why a leader may still start the job, "" if the job is not stored.
    """

    why: Reason | str
    is_led: bool


def parse_leader(data: bytes) -> str:
    """Return the REST address in a leader's node. Raise NotAnAddress for data in neither of the two formats."""
    address = _from_json(data) if data.startswith(b"{") else _from_java(data)
    target = outbound.parse(address)
    if isinstance(target, Denied):
        raise NotAnAddress(EngineReason.NODE_BAD_ADDRESS(address=address[:200], why=target.reason))
    if len(address) > LONGEST_ADDRESS:
        raise NotAnAddress(EngineReason.NODE_LONG_ADDRESS(count=len(address)))
    return address.rstrip("/")


def _from_json(data: bytes) -> str:
    try:
        address = json.loads(data)["address"]
    except (ValueError, KeyError, TypeError) as error:
        raise NotAnAddress(EngineReason.NODE_JSON_WITHOUT_ADDRESS()) from error
    if not isinstance(address, str):
        raise NotAnAddress(EngineReason.NODE_JSON_BAD_ADDRESS())
    return address


def _from_java(data: bytes) -> str:
    """Return the address that Java wrote with `writeUTF(address); writeObject(uuid)`.

    The stream has one block of data, one UUID (or null), and nothing after it.
    """
    try:
        if data[:4] != _STREAM:
            raise NotAnAddress(EngineReason.NODE_NOT_JAVA())
        if data[4:5] == b"w":
            start, length = 6, data[5]
        elif data[4:5] == b"z":
            start, length = 9, struct.unpack(">I", data[5:9])[0]
        else:
            raise NotAnAddress(EngineReason.NODE_BAD_START())
        block, rest = data[start : start + length], data[start + length :]
        text = block[2:]
        if len(block) != length or struct.unpack(">H", block[:2])[0] != len(text):
            raise NotAnAddress(EngineReason.NODE_CUT_SHORT())
        if rest != _NULL and not (rest.startswith(_UUID) and len(rest) == len(_UUID) + 16):
            raise NotAnAddress(EngineReason.NODE_BAD_TERM())
        return text.decode("ascii")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise NotAnAddress(EngineReason.NODE_UNREADABLE()) from error


def find_leader(quorum: Quorum, limit_s: float = _CONNECT_LIMIT_S) -> Leader | Nobody:
    """Read the leader from ZooKeeper and wait for the answer. It blocks, so do not call it in an event loop."""
    client = _client(quorum)
    try:
        client.start(limit_s)
        return _read(client, quorum, None)
    except (KazooException, KazooTimeoutError, OSError):
        return _silent(quorum, client)
    finally:
        _end(client)


def stored_job_reason(quorum: Quorum, job_id: str, limit_s: float = _CONNECT_LIMIT_S) -> Reason | str:
    """Return why a leader may still start this Flink job, "" if none will.

    If ZooKeeper does not answer, a leader may still start the job. The call blocks: not for an event loop.
    """
    return find_stored_job(quorum, job_id, limit_s).why


def find_stored_job(quorum: Quorum, job_id: str, limit_s: float = _CONNECT_LIMIT_S) -> StoredJob | Nobody:
    """Return whether Flink's job store has the job, or Nobody if ZooKeeper does not answer.

    Flink stores a job until its final end. A FAILED that a leader reports while it loses the leadership is not the end.
    Flink is about to delete a node without children. The call blocks: not for an event loop.
    """
    client = _client(quorum)
    try:
        client.start(limit_s)
        is_held = any(node is not None and node.numChildren for node in _seen(client, quorum.job_paths(job_id)))
        is_led = any(node is not None and node.dataLength for node in _seen(client, quorum.paths))
    except (KazooException, KazooTimeoutError, OSError):
        return _silent(quorum, client)
    finally:
        _end(client)
    return StoredJob(EngineReason.JOB_STORED(job_id=job_id) if is_held else "", is_led)


def _seen(client: KazooClient, paths: Iterable[str]) -> list[ZnodeStat | None]:
    return [client.exists_async(path).get(timeout=_READ_LIMIT_S) for path in paths]


class LeaderWatch:
    """A thread that follows one cluster's leader. `sighting` never waits; its result is at most a few seconds old."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._newest: Leader | Nobody | None = None
        self._changed = threading.Event()
        self._asked = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name=f"leader of {quorum.paths[0]}", daemon=True)
        self._thread.start()

    def sighting(self) -> Leader | Nobody | None:
        """Return the newest sighting, None before the first."""
        self._asked.set()
        return self._newest

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closed

    def close(self) -> None:
        self._closed = True
        self._changed.set()
        self._thread.join(_CONNECT_LIMIT_S)

    def _follow(self) -> None:
        client = _client(self._quorum)
        client.add_listener(lambda _state: self._changed.set())
        client.start_async()
        unasked = connecting = 0
        while not self._closed and unasked * _RETRY_S < _IDLE_LIMIT_S:
            self._changed.clear()
            connecting = 0 if client.connected else connecting + 1
            if client.connected:
                self._newest = self._look(client)
            elif connecting * _RETRY_S > _SILENT_AFTER_S:
                self._newest = _silent(self._quorum, client)
            self._changed.wait(_RETRY_S)
            unasked = 0 if self._asked.is_set() else unasked + 1
            self._asked.clear()
        _end(client)

    def _look(self, client: KazooClient) -> Leader | Nobody:
        try:
            return _read(client, self._quorum, lambda _event: self._changed.set())
        except (KazooException, KazooTimeoutError, OSError):
            return _silent(self._quorum, client)


def _read(client: KazooClient, quorum: Quorum, watch: Any) -> Leader | Nobody:
    for path in quorum.paths:
        try:
            data, _ = client.get_async(path, watch).get(timeout=_READ_LIMIT_S)
        except NoAuthError:
            return Nobody(EngineReason.NODE_NOT_READABLE(path=path))
        except NoNodeError:
            if watch is not None:
                client.exists_async(path, watch).get(timeout=_READ_LIMIT_S)
            continue
        if not data:
            return Nobody(EngineReason.NODE_EMPTY(path=path))
        if not _may_be_followed(client, quorum, path):
            return Nobody(EngineReason.NODE_NOT_OURS(name=quorum.access.username, path=path))
        try:
            return Leader(parse_leader(data))
        except NotAnAddress as error:
            return Nobody(EngineReason.NODE_MALFORMED(problem=error.reason, path=path))
    return Nobody(EngineReason.NODE_MISSING(path=quorum.paths[0]))


def _may_be_followed(client: KazooClient, quorum: Quorum, path: str) -> bool:
    if not quorum.gets_secrets or not quorum.access.has_name:
        return True
    acls, _ = client.get_acls_async(path).get(timeout=_READ_LIMIT_S)
    return quorum.access.owns(acls)


def _client(quorum: Quorum) -> KazooClient:
    return make_client(quorum.hosts, quorum.access, timeout=_SESSION_S, read_only=True)


def _end(client: KazooClient) -> None:
    client.stop()
    client.close()


def _silent(quorum: Quorum, client: KazooClient) -> Nobody:
    if client.refused:
        return Nobody(EngineReason.ZOOKEEPER_LOG_IN_REFUSED(hosts=quorum.hosts))
    if quorum.access.tls is not None:
        if why := client.handler.problem:
            return Nobody(EngineReason.ZOOKEEPER_NO_TLS(hosts=quorum.hosts, why=why))
        return Nobody(EngineReason.ZOOKEEPER_SILENT_TLS(hosts=quorum.hosts))
    return Nobody(EngineReason.ZOOKEEPER_SILENT(hosts=quorum.hosts))
