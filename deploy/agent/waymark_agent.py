"""Report the progress of Structured Streaming queries to Waymark, with one line in the program.

    import waymark_agent; waymark_agent.attach(spark)

The address and the token come from the arguments or from WAYMARK_URL and WAYMARK_TOKEN. This file needs no package
other than PySpark 3.5 or newer, and runs with Python 3.9 or newer.

The agent must never delay or fail a query. So a call of the listener only appends to a bounded queue, and a daemon
thread sends. If Waymark does not answer, the queue drops its oldest reports and counts them. A wrong setting raises no
error either: the agent logs it. No log message contains a secret.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from datetime import datetime, timezone
from typing import Any, Callable, NamedTuple

__all__ = ["Agent", "attach"]

VERSION = "1.0.0"
PROTOCOL = 1
PATH = "/api/v1/agent/reports"

# The queue: how many batches, and how many characters of Spark's progress, wait at most.
MOST_BATCHES, MOST_CHARACTERS = 1_000, 16_000_000
MOST_CHANGES = 1_000
MOST_ENDED = 100
# One post.
MOST_SENT, MOST_SENT_CHARACTERS = 100, 500_000
LONGEST_ANSWER = 64_000
LONGEST_EXCEPTION = 20_000
LONGEST_OFFSETS = 4_000
MOST_PARTS = 50
TIMEOUT_S = 10.0
EVERY_S, ALIVE_EVERY_S = 2.0, 30.0
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
LOG_EVERY_S = 300.0
FLUSH_S = 2.0

# A post with one of these answers cannot succeed later.
_REFUSED = frozenset((400, 413, 422))
_TOKEN = re.compile(r"[!-~]+")
_UNPRINTABLE = re.compile(r"[^ -~]+")

log = logging.getLogger("waymark_agent")
Json = dict[str, Any]


def attach(
    spark: Any,
    url: str | None = None,
    token: str | None = None,
    name: str | None = None,
    ca_file: str | None = None,
) -> Agent:
    """Report every streaming query of this session from now on, and return the agent.

    Args:
        spark: The session.
        url: Waymark's address, such as https://waymark.example.org. Default: WAYMARK_URL.
        token: A token that may report for one cluster. Default: WAYMARK_TOKEN.
        name: The program's name, the first part of the names of its jobs. Default: spark.app.name.
        ca_file: Trusted CA certificates in PEM. Default: those of the machine.

    Raises:
        Nothing. If the agent cannot run, it logs the reason, and `Agent.is_running` is False.
    """
    agent = Agent(url or os.environ.get("WAYMARK_URL", ""), token or os.environ.get("WAYMARK_TOKEN", ""), ca_file)
    try:
        agent.start(spark, name)
    except Exception as error:  # noqa: BLE001 - monitoring must not fail the program
        log.error("Queries are not reported to Waymark: %s", agent.hide(error))
    return agent


class _Refused(Exception):
    """Waymark refuses the content of a post."""


class _NotStored(Exception):
    """Waymark has not confirmed that it stored a post. `wait_s`: how long it wants the agent to wait, if known."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class _Batch(NamedTuple):
    run_id: str
    progress: str  # Spark's JSON
    duration_ms: int | None  # which the JSON of Spark 3.5 lacks


class _Change(NamedTuple):
    """A query has started, was idle, or has ended."""

    kind: str
    query_id: str
    run_id: str
    name: str | None
    at: str | None
    exception: str | None = None


class _Queue:
    """What the listener has seen and the thread has not sent. Any thread may append, and nothing here waits for I/O.

    Changes of queries wait separately, so that many batches do not displace the end of a query.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: deque[_Batch] = deque()
        self._characters = 0
        self._changes: deque[_Change] = deque(maxlen=MOST_CHANGES)
        self._dropped: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._batches) + len(self._changes)

    def add_change(self, change: _Change) -> None:
        self._changes.append(change)

    def add_progress(self, progress: Any) -> None:
        """Append Spark's progress as JSON. The oldest ones make room."""
        batch = _Batch(str(progress.runId), progress.json, progress.batchDuration)
        with self._lock:
            self._batches.append(batch)
            self._characters += len(batch.progress)
            while len(self._batches) > MOST_BATCHES or self._characters > MOST_CHARACTERS:
                oldest = self._batches.popleft()
                self._characters -= len(oldest.progress)
                self._dropped[oldest.run_id] = self._dropped.get(oldest.run_id, 0) + 1

    def take_changes(self) -> list[_Change]:
        taken = []
        while self._changes:
            taken.append(self._changes.popleft())
        return taken

    def take_batches(self, most: int) -> list[_Batch]:
        """Return the oldest batches, as many as one post may have."""
        taken: list[_Batch] = []
        size = 0
        with self._lock:
            while self._batches and len(taken) < most:
                size += len(self._batches[0].progress)
                if taken and size > MOST_SENT_CHARACTERS:
                    break
                self._characters -= len(self._batches[0].progress)
                taken.append(self._batches.popleft())
        return taken

    def count_dropped(self, batch: _Batch) -> None:
        with self._lock:
            self._dropped[batch.run_id] = self._dropped.get(batch.run_id, 0) + 1

    def dropped(self, run_id: str) -> int:
        return self._dropped.get(run_id, 0)

    def forget(self, run_id: str) -> None:
        with self._lock:
            self._dropped.pop(run_id, None)


class Agent:
    """Sends the queue from a daemon thread. Made by `attach`."""

    def __init__(self, url: str, token: str, ca_file: str | None = None) -> None:
        self._url = url.strip().rstrip("/")
        self._token = token.strip()
        self._ca_file = ca_file
        self._queue = _Queue()
        self._program: Json = {}
        self._thread: threading.Thread | None = None
        self._closing, self._closed = threading.Event(), threading.Event()
        self._remove_listener: Callable[[], None] = lambda: None
        # Used by the thread only: queries by run id as in the next post, and the batches that it took from the queue.
        self._queries: dict[str, Json] = {}
        self._taken: list[_Batch] = []
        self._most = MOST_SENT
        self._has_news = False
        self._sent_at = self._logged_at = self._closes_at = -math.inf
        self._listens = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._closing.is_set()

    def start(self, spark: Any, name: str | None = None) -> None:
        """Add the listener and start the thread. Raise ValueError if a setting is wrong."""
        self._opener = _opener(self._url, self._token, self._ca_file)
        self._program = {
            "name": name or spark.conf.get("spark.app.name", None) or "pyspark",
            "spark": str(spark.version),
            "agent": VERSION,
        }
        listener = _listener(self._queue)
        spark.streams.addListener(listener)
        self._listens = True
        self._remove_listener = lambda: spark.streams.removeListener(listener)
        for query in spark.streams.active:  # started before this line of the program
            self._queue.add_change(_Change("running", str(query.id), str(query.runId), query.name, None))
        self._thread = threading.Thread(target=self._run, name="waymark-agent", daemon=True)
        self._thread.start()
        atexit.register(self._flush)

    def close(self) -> None:
        """Stop reporting. Wait at most FLUSH_S for what is not sent yet."""
        try:
            self._remove_listener()
        except Exception as error:  # noqa: BLE001 - the session may be stopped
            log.debug("The listener was not removed: %s", type(error).__name__)
        self._listens = False
        self._flush()
        atexit.unregister(self._flush)

    def hide(self, text: object) -> str:
        """Return the text on one line and without the token."""
        shown = str(text).replace(self._token, "…") if self._token else str(text)
        return _UNPRINTABLE.sub(" ", shown)[:300]

    def _flush(self) -> None:
        """Let the thread send the rest. At the end of a program, Spark may still report the ends of its queries."""
        self._closes_at = time.monotonic() + FLUSH_S
        self._closing.set()
        self._closed.wait(FLUSH_S)

    # --- the thread

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._is_over():
            wait_s = EVERY_S
            try:
                self._send_next()
            except _NotStored as error:
                self._log(error)
                wait_s = max(retry_s, min(error.wait_s, LAST_RETRY_S))
                retry_s = min(2 * retry_s, LAST_RETRY_S)
            except Exception as error:  # noqa: BLE001 - _Refused, or a mistake of this file: both would come again
                self._log(error)
                self._narrow()
                wait_s = 0.0 if self._taken else EVERY_S
            else:
                retry_s = FIRST_RETRY_S
                if self._taken or len(self._queue) > self._most:
                    wait_s = 0.0
            if self._closing.is_set():
                time.sleep(min(wait_s, 0.05))
            else:
                self._closing.wait(wait_s)
        self._closed.set()

    def _is_over(self) -> bool:
        """Return whether nothing can follow that is worth waiting for, or there is no more time."""
        if not self._closing.is_set():
            return False
        is_awaited = self._taken or self._queue or self._has_news or (self._listens and self._queries)
        return not is_awaited or time.monotonic() >= self._closes_at

    def _send_next(self) -> None:
        """Send a post if there is something new, or if the running queries must be named again.

        Raises:
            _Refused, _NotStored: what was taken from the queue is still in `_taken`.
        """
        self._note_changes()
        if not self._taken:
            self._taken = self._queue.take_batches(self._most)
        is_due = bool(self._queries) and time.monotonic() - self._sent_at >= ALIVE_EVERY_S
        if not self._taken and not self._has_news and not is_due:
            return
        sent, queries = self._taken[: self._most], list(self._queries.values())
        self._post({"queries": queries, "progress": [each for each in map(_progress, sent) if each is not None]})
        del self._taken[: len(sent)]
        self._most, self._has_news, self._sent_at = MOST_SENT, False, time.monotonic()
        for query in queries:
            if query["state"] == "ended":
                self._forget(query["run_id"])

    def _note_changes(self) -> None:
        """Bring the entries of the queries up to date."""
        for change in self._queue.take_changes():
            self._has_news = True
            query = self._queries.setdefault(
                change.run_id,
                {
                    "query_id": change.query_id,
                    "run_id": change.run_id,
                    "name": change.name,
                    "state": "running",
                    "started_at": None,
                    "idle_at": None,
                    "ended_at": None,
                    "exception": None,
                },
            )
            query["name"] = query["name"] or change.name
            if change.kind == "started":
                query["started_at"] = change.at
            elif change.kind == "idle":
                query["idle_at"] = change.at
            elif change.kind == "ended":
                query.update(state="ended", ended_at=change.at, exception=change.exception)
        for run_id, query in self._queries.items():
            query["dropped"] = self._queue.dropped(run_id)
        ended = [run_id for run_id, query in self._queries.items() if query["state"] == "ended"]
        for run_id in ended[:-MOST_ENDED]:
            self._forget(run_id)

    def _narrow(self) -> None:
        """Find the batch that Waymark refuses by halves, and give it up."""
        refused = len(self._taken[: self._most])
        if refused > 1:
            self._most = refused // 2
            return
        for batch in self._taken[:refused]:
            self._queue.count_dropped(batch)
        del self._taken[:refused]
        self._most = MOST_SENT
        if not refused:  # the entry of a query is wrong
            self._has_news, self._sent_at = False, time.monotonic()
            for run_id in [each["run_id"] for each in self._queries.values() if each["state"] == "ended"]:
                self._forget(run_id)

    def _forget(self, run_id: str) -> None:
        self._queries.pop(run_id, None)
        self._queue.forget(run_id)

    def _post(self, content: Json) -> None:
        body = json.dumps({"version": PROTOCOL, "program": self._program, **content}, allow_nan=False).encode()
        request = urllib.request.Request(self._url + PATH, body, _headers(self._token))  # noqa: S310
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                stored = _json(_read(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise _failure(error) from None
        except Exception as error:  # noqa: BLE001 - HTTPException, OSError, and what proxies and TLS add
            raise _NotStored(f"{type(error).__name__}: {error}") from None
        if not isinstance(stored, dict) or stored.get("version") != PROTOCOL:
            raise _NotStored("the answer is not Waymark's")

    def _log(self, error: Exception) -> None:
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            log.warning("Waymark has not stored a report of this program's queries: %s", self.hide(error))


def _listener(queue: _Queue) -> Any:
    """Return the listener. It is defined here because PySpark may be missing where this file is only imported."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):  # type: ignore[misc]
        """Appends to the queue. Spark logs an exception of a listener, so there must be none."""

        def onQueryStarted(self, event: Any) -> None:
            _quietly(lambda: queue.add_change(_change("started", event, event.name, event.timestamp)))

        def onQueryProgress(self, event: Any) -> None:
            _quietly(lambda: queue.add_progress(event.progress))

        def onQueryIdle(self, event: Any) -> None:
            _quietly(lambda: queue.add_change(_change("idle", event, None, event.timestamp)))

        def onQueryTerminated(self, event: Any) -> None:
            now = datetime.now(timezone.utc).isoformat()
            _quietly(lambda: queue.add_change(_change("ended", event, None, now, event.exception)))

    return Listener()


def _quietly(append: Callable[[], None]) -> None:
    try:
        append()
    except Exception as error:  # noqa: BLE001 - monitoring must not disturb Spark
        log.debug("An event of Spark was not read: %s", type(error).__name__)


def _change(kind: str, event: Any, name: str | None, at: str, exception: str | None = None) -> _Change:
    failure = None if exception is None else str(exception)[:LONGEST_EXCEPTION]
    return _Change(kind, str(event.id), str(event.runId), name, at, failure)


def _opener(url: str, token: str, ca_file: str | None) -> urllib.request.OpenerDirector:
    """Return what sends the requests. It verifies certificates and follows no redirect, which would send the token.

    Raises:
        ValueError: the address or the token is not usable. The message does not contain them.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("WAYMARK_URL must be an address such as https://waymark.example.org")
    if parts.username is not None or parts.query or parts.fragment or not _TOKEN.fullmatch(url):
        raise ValueError("WAYMARK_URL must have no user name, no password, no ?, no # and no spaces")
    if not _TOKEN.fullmatch(token):
        raise ValueError("WAYMARK_TOKEN must be a token of Waymark without spaces")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        log.warning("The token is sent to Waymark without encryption. Use an https address.")
    context = ssl.create_default_context(cafile=ca_file)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _headers(token: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": f"waymark-agent/{VERSION}",
    }


def _failure(error: urllib.error.HTTPError) -> Exception:
    """Return the error for an error answer. Its text is the server's message."""
    try:
        found = _json(_read(error))
        message = str(found["error"]["message"])
    except Exception:  # noqa: BLE001 - not Waymark's answer
        return _NotStored(f"status {error.code}")
    if error.code in _REFUSED:
        return _Refused(f"status {error.code}: {message}")
    wait = error.headers.get("Retry-After") or ""
    return _NotStored(f"status {error.code}: {message}", float(wait) if wait.isdigit() and len(wait) < 6 else 0.0)


def _read(answer: Any) -> bytes:
    """Return the answer's content. A server that sends it byte by byte does not keep the thread."""
    content, until = b"", time.monotonic() + TIMEOUT_S
    while len(content) < LONGEST_ANSWER and time.monotonic() < until:
        part = answer.read1(LONGEST_ANSWER)
        if not part:
            break
        content += part
    return content


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _progress(batch: _Batch) -> Json | None:
    """Return what Waymark stores of Spark's progress, with Spark's names. What Spark does not know is left out."""
    try:
        read = json.loads(batch.progress, parse_constant=lambda _: None)
        kept = _known(read, ("id", "runId", "name", "timestamp", "batchId", "batchDuration", "durationMs", "eventTime"))
        kept.setdefault("batchDuration", batch.duration_ms)
        kept.update(_known(read, ("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")))
        kept["stateOperators"] = [_known(each, _OPERATOR) for each in read.get("stateOperators") or ()][:MOST_PARTS]
        kept["sources"] = [_source(each) for each in read.get("sources") or ()][:MOST_PARTS]
        kept["sink"] = _known(read.get("sink") or {}, ("description", "numOutputRows"))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        log.debug("A progress of Spark was not read: %s", type(error).__name__)
        return None
    return kept


_OPERATOR = (
    *("operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark"),
    *("memoryUsedBytes", "allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs", "numShufflePartitions"),
    "customMetrics",
)


def _source(read: Json) -> Json:
    kept = _known(read, ("description", "numInputRows", "inputRowsPerSecond", "processedRowsPerSecond"))
    offsets = read.get("endOffset")
    if offsets is not None:
        text = offsets if isinstance(offsets, str) else json.dumps(offsets)
        kept["endOffset"] = text if len(text) <= LONGEST_OFFSETS else text[: LONGEST_OFFSETS - 1] + "…"
    return kept


def _known(read: Json, names: tuple[str, ...]) -> Json:
    """Return the values of these names, without missing ones."""
    found = {name: read.get(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}
