"""Read the applications in the answers of YARN's ResourceManager, and choose the row of each. Pure functions.

Flink registers the host and the port of its REST API as the RPC address of its application master, so YARN reports them
as `amRPCAddress`. YARN's proxy (`trackingUrl`) forwards only GET and PUT, so Waymark could not take savepoints there.

The keys in `Found.state` are: `application` (YARN's state), `final_status`, `ended_at` (ISO; only of an ended
application), `started_at` and `user`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from monitoring import outbound
from monitoring.discovery.found import Found, Key, Unreadable, usable_labels
from monitoring.engine.causes import from_errors
from monitoring.outbound import Denied
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.reason import Reason

FLINK = "flinkapplications.yarn"
SPARK = "sparkapplications.yarn"
# By the type that the applications register.
KINDS = {"Apache Flink": FLINK, "SPARK": SPARK}
NAMES = {FLINK: "Flink application", SPARK: "Spark application"}
LIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
ENDED = ("FINISHED", "FAILED", "KILLED")
SUCCEEDED = "SUCCEEDED"
# A cluster stays after its end: so that the end of its jobs is noticed, and so that a failed one is seen.
ENDED_KEPT = timedelta(days=1)
_SUCCEEDED_KEPT = timedelta(minutes=10)
_KIND_OF = {kind.lower(): key for kind, key in KINDS.items()}
_ID = re.compile(r"application_(\d{1,19})_(\d{1,10})")
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9]\d{0,4}")
_LONGEST_NAME = 200
_LONGEST_DIAGNOSTICS = 20_000
# Applications wait for some seconds until their master is registered.
_WAITS_LONG = timedelta(minutes=2)
_LATEST_MS = 253_402_300_799_000


@dataclass(frozen=True)
class Application:
    """An application. `address` is the host and the port of its master, "" if YARN does not report them."""

    id: str
    kind: str
    name: str
    queue: str
    user: str
    state: str
    final_status: str
    started_at: datetime | None
    ended_at: datetime | None
    waits: timedelta
    address: str
    diagnostics: str = field(repr=False)
    tags: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_succeeded(self) -> bool:
        return self.final_status == SUCCEEDED

    @property
    def key(self) -> Key:
        """Return the key of the only application with this name in its queue."""
        return Key(self.kind, self.queue, self.name)

    @property
    def own_key(self) -> Key:
        """Return the key of an application while another one with its name runs."""
        return Key(self.kind, self.queue, f"{self.name} {self.id}")

    @cached_property
    def order(self) -> tuple[int, int]:
        """Return a value that is larger for a later application."""
        return order_of(self.id)


@dataclass(frozen=True)
class Known:
    """The row of an application. `changed_at`: when it was last stored. `is_gone`: it is no longer shown."""

    key: Key
    id: str
    version: str
    state: Mapping[str, str]
    changed_at: datetime
    is_gone: bool

    def is_over(self, now: datetime) -> bool:
        """Return whether the application ended so long ago that nobody needs its end."""
        kept = _SUCCEEDED_KEPT if self.state.get("final_status") == SUCCEEDED else ENDED_KEPT
        return self.has_ended and self.changed_at < now - kept

    @property
    def has_ended(self) -> bool:
        return self.state.get("application") in ENDED


def read(value: object) -> Application:
    """Return the application. Raise Unreadable."""
    raw = value if isinstance(value, dict) else {}
    id_ = _text(raw, "id")
    kind = _KIND_OF.get(_text(raw, "applicationType").lower())
    queue, state = _line(_text(raw, "queue")), _text(raw, "state")
    if not _ID.fullmatch(id_) or kind is None or not queue or state not in (*LIVE, *ENDED):
        raise Unreadable(id_[:80])
    return Application(
        id=id_,
        kind=kind,
        name=_line(_text(raw, "name")) or id_,
        queue=queue,
        user=_line(_text(raw, "user")),
        state=state,
        final_status=_text(raw, "finalStatus")[:20] if state in ENDED else "",
        started_at=_time(raw, "startedTime"),
        ended_at=_time(raw, "finishedTime") if state in ENDED else None,
        waits=timedelta(milliseconds=_whole(raw, "elapsedTime")) if state == "ACCEPTED" else timedelta(),
        address=address if _ADDRESS.fullmatch(address := _text(raw, "amRPCAddress")[:300]) else "",
        diagnostics=_text(raw, "diagnostics")[:_LONGEST_DIAGNOSTICS],
        tags=tuple(tag for tag in _text(raw, "applicationTags")[:2000].split(",") if tag),
    )


def order_of(id_: str) -> tuple[int, int]:
    """Return a value that is larger for a later application. Ids have the start of YARN and a number."""
    match = _ID.fullmatch(id_)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def found(application: Application, key: Key, address_pattern: str) -> Found:
    """Return what is stored about an application under `key`."""
    rest_url, problem = "", _problem(application)
    if application.kind == FLINK and application.state == "RUNNING":
        rest_url = _rest_url(application, address_pattern)
        if not rest_url:
            hidden = application.started_at is None
            problem = DiscoveryReason.NOT_VISIBLE() if hidden else DiscoveryReason.NO_MASTER_ADDRESS()
    state = {
        "application": application.state,
        "final_status": application.final_status,
        "started_at": application.started_at.isoformat() if application.started_at else "",
        "ended_at": application.ended_at.isoformat() if application.ended_at else "",
        "user": application.user,
    }
    made = Found(
        key,
        uid=application.id,
        rest_url=rest_url,
        deployment=key.name,
        labels=_labels(application),
        state={name: text for name, text in state.items() if text},
        problem=problem,
    )
    return replace(made, version=_digest(made))


def is_selected(application: Application, queues: Collection[str], users: Collection[str]) -> bool:
    """Return whether the queue and the user are chosen. A queue is named by its path, its last part, or a parent."""
    path = application.queue.split(".")
    names = {path[-1], *(".".join(path[: count + 1]) for count in range(len(path)))}
    return (not queues or not names.isdisjoint(queues)) and (not users or application.user in users)


def assign(listed: Iterable[Application], known: Iterable[Known]) -> Iterator[tuple[Key, Application]]:
    """Yield each application with its key. An application may be yielded for a key after another one.

    An application keeps its key for its life. A new one takes the key of its queue and name if no application that runs
    has it. Otherwise, its key has its id.
    """
    rows = {row.key: row for row in known}
    by_id = {row.id: row for row in rows.values()}
    new: list[Application] = []
    held: set[Key] = set()
    for application in sorted(listed, key=lambda each: each.order):
        row = by_id.get(application.id)
        if row is None:
            new.append(application)
        elif not application.has_ended:
            held.add(row.key)
            yield row.key, application
        elif not row.is_gone:
            yield row.key, application
    yield from _failed(new, rows, held)
    for application in new:
        if not application.has_ended:
            key = application.own_key if application.key in held else application.key
            held.add(key)
            yield key, application


def _failed(new: Sequence[Application], rows: Mapping[Key, Known], held: set[Key]) -> Iterator[tuple[Key, Application]]:
    """Yield the last application for each key that ended before it was seen, if it explains something."""
    last = {each.key: each for each in new if each.has_ended and each.kind == FLINK and each.key not in held}
    for key, application in last.items():
        row = rows.get(key)
        if order_of(row.id) < application.order if row else not application.has_succeeded:
            yield key, application


def _labels(application: Application) -> dict[str, str]:
    """Return the queue and the user as labels, and the tags that have the form key=value or key:value."""
    pairs = (re.split("[=:]", tag, maxsplit=1) for tag in application.tags)
    tags = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    named = {"queue": application.queue, "user": application.user}
    return usable_labels(tags | {name: text for name, text in named.items() if text})


def _rest_url(application: Application, pattern: str) -> str:
    if "{address}" in pattern and not application.address:
        return ""
    url = pattern.replace("{address}", application.address).replace("{id}", application.id)
    return "" if isinstance(outbound.parse(url), Denied) else url


def _problem(application: Application) -> Reason | None:
    wrong = {"FAILED", "KILLED"} & {application.state, application.final_status}
    if wrong:
        status = application.final_status if application.final_status in wrong else application.state
        return _reported(status, application.diagnostics)
    return _reported(application.state, application.diagnostics) if application.waits > _WAITS_LONG else None


def _reported(status: str, diagnostics: str) -> Reason:
    text = from_errors([diagnostics])[:1000]
    return DiscoveryReason.YARN_TEXT(status=status, text=text) if text else DiscoveryReason.YARN_STATE(status=status)


def _digest(made: Found) -> str:
    problem = made.problem and (made.problem.code, made.problem.args)
    values = (made.uid, made.rest_url, made.labels, made.state, problem)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def _time(raw: Mapping[str, Any], name: str) -> datetime | None:
    value = _whole(raw, name)
    return datetime.fromtimestamp(value / 1000, UTC) if 0 < value <= _LATEST_MS else None


def _whole(raw: Mapping[str, Any], name: str) -> int:
    value = raw.get(name)
    return value if type(value) is int and 0 <= value <= _LATEST_MS else 0


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    return value.replace("\0", "") if isinstance(value, str) else ""


def _line(text: str) -> str:
    """Return the text without characters that cannot be shown in a line, at most 200 characters."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 2 * _LONGEST_NAME])
    return " ".join(shown.split())[:_LONGEST_NAME].strip()
