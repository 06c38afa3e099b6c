"""A simulated Kubernetes API server over real HTTP, with the semantics of lists and watches.

Each change has a resourceVersion. A list comes in pages of one moment. A watch sends the changes after a version, then
bookmarks, and ends after timeoutSeconds. Versions that were compacted answer 410 Gone: in the stream, or as the status.
The switches make it lack a kind of resources, forbid a verb, cut connections, or never answer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import urllib.parse
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.monitoring.discovery.played_server import PlayedHandler, PlayedServer

Json = dict[str, Any]
TOKEN = "the-token-of-the-account"
FLINK = "flinkdeployments.flink.apache.org"
SESSION_JOB = "flinksessionjobs.flink.apache.org"
SNAPSHOT = "flinkstatesnapshots.flink.apache.org"
SPARK = "sparkapplications.spark.apache.org"
POD = "pods"
EVENT = "events"
KUBEFLOW = "sparkapplications.sparkoperator.k8s.io"
_TICK_S = 0.3


@dataclass(frozen=True)
class Event:
    version: int
    kind: str
    type: str
    now: Json
    before: Json | None


@dataclass
class PlayedKubernetes(PlayedServer):
    """The server. `objects` is by kind, namespace and name. `requests` counts them by verb and kind."""

    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    version: int = 1000
    compacted: int = 1000
    missing: set[str] = field(default_factory=set)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    silent: bool = False
    status_410: bool = False
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    pages: dict[str, tuple[int, list[Json]]] = field(default_factory=dict)
    generation: int = 0
    # A verb with "request": requests that never arrive; with "answer": requests that are carried out unanswered.
    lost: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.listen(Handler)

    @property
    def kubeconfig(self) -> str:
        return kubeconfig(self.url)

    def put(self, name: str, kind: str = FLINK, namespace: str = "prod", **parts: Any) -> Json:
        """Create or change an object. `parts`: labels, spec, status, and uid for another object."""
        with self.changed:
            before = self.objects.get((kind, namespace, name))
            uid = parts.pop("uid", None) or (before["metadata"]["uid"] if before else str(uuid.uuid4()))
            self.version += 1
            metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(self.version)}
            metadata["labels"] = parts.pop("labels", before["metadata"]["labels"] if before else {})
            annotations = parts.pop("annotations", before["metadata"].get("annotations", {}) if before else {})
            metadata["annotations"] = annotations
            kept = {part: before[part] for part in ("spec", "status") if part in before} if before else {}
            now = {"apiVersion": "v1", "kind": "Any", "metadata": metadata, **kept, **parts}
            self._store("MODIFIED" if before else "ADDED", (kind, namespace, name), now, before)
            return now

    def delete(self, name: str, kind: str = FLINK, namespace: str = "prod") -> None:
        with self.changed:
            before = self.objects.pop((kind, namespace, name))
            self.version += 1
            metadata = before["metadata"] | {"resourceVersion": str(self.version)}
            self.events.append(Event(self.version, kind, "DELETED", before | {"metadata": metadata}, before))
            self.changed.notify_all()

    def _store(self, type_: str, key: tuple[str, str, str], now: Json, before: Json | None) -> None:
        self.objects[key] = now
        self.events.append(Event(self.version, key[0], type_, now, before))
        self.changed.notify_all()

    def compact(self) -> None:
        """Forget all changes and all pages, as etcd does after some minutes."""
        with self.changed:
            self.compacted = self.version
            self.events.clear()
            self.pages.clear()

    def cut(self) -> None:
        """Cut all watches in the middle of a line."""
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def names(self, kind: str = FLINK) -> set[str]:
        return {f"{namespace}/{name}" for of, namespace, name in self.objects if of == kind}


def kubeconfig(url: str, **user: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user or {"token": TOKEN}}],
    }
    return json.dumps(config)  # JSON is YAML


def merged(before: Any, patch: Any) -> Any:
    """Return the result of a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _has_fields(thing: Json, selector: str) -> bool:
    """Return whether the object matches a field selector, such as involvedObject.kind=Pod,type=Warning."""
    for path, _, wanted in (pair.partition("=") for pair in filter(None, selector.split(","))):
        value: Any = thing
        for name in path.split("."):
            value = value.get(name, {})
        if value != wanted:
            return False
    return True


def _matches(thing: Json, selector: str) -> bool:
    if selector.startswith("app,component in"):
        return {"app", "component"} <= thing["metadata"]["labels"].keys()
    pairs = (pair.split("=", 1) for pair in filter(None, selector.split(",")))
    return all(thing["metadata"]["labels"].get(key) == value for key, value in pairs)


class Handler(PlayedHandler):
    played: PlayedKubernetes

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        self._serve({"POST": "create"})

    def do_PATCH(self) -> None:
        self._serve({"PATCH": "patch"})

    def do_DELETE(self) -> None:
        self._serve({"DELETE": "delete"})

    def _serve(self, verbs: dict[str, str]) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        parts = path.strip("/").split("/")
        namespace, name = "", ""
        if "namespaces" in parts:
            start = parts.index("namespaces")
            namespace, name = parts[start + 1], (parts[start + 3 :] or [""])[0]
        plural = parts[-2] if name else parts[-1]
        kind = plural if parts[0] == "api" else f"{plural}.{parts[1]}"
        watches = asked.get("watch") == "true"
        verb = verbs.get(self.command) or ("get" if name else "watch" if watches else "list")
        api = self.played
        api.requests[verb, kind] += 1
        if api.silent or (verb, "request") in api.lost:
            with api.changed:
                api.changed.wait_for(lambda: api.over or not api.silent)
            self.close_connection = True
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._fail(401, "Unauthorized")
        elif kind in api.missing:
            self._fail(404, "404 page not found")
        elif (verb, kind) in api.forbidden:
            self._fail(403, f"{kind} is forbidden")
        elif verb == "list":
            self._list(kind, namespace, asked)
        elif verb == "watch":
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._watch(kind, namespace, asked)
        else:
            code, answer = self._act(verb, (kind, namespace, name), json.loads(content) if content else {})
            if (verb, "answer") in api.lost:
                self.close_connection = True
            else:
                self._answer(code, answer)

    def _act(self, verb: str, key: tuple[str, str, str], sent: Json) -> tuple[int, Json]:
        """Carry out a request for one object. Return the status and the answer."""
        api = self.played
        with api.changed:
            if key[0].startswith("selfsubjectaccessreviews."):
                wanted = sent["spec"]["resourceAttributes"]
                right = (wanted["verb"], f"{wanted['resource']}.{wanted['group']}")
                return 201, sent | {"status": {"allowed": right not in api.forbidden}}
            if verb == "create":
                key = (*key[:2], sent["metadata"]["name"])
                if key in api.objects:
                    return 409, _status(409, f"{key[2]} already exists")
                return 201, api.put(key[2], key[0], key[1], spec=sent["spec"])
            before = api.objects.get(key)
            if before is None:
                return 404, _status(404, f"{key[2]} not found")
            if verb == "get":
                return 200, before
            if verb == "delete":
                api.delete(key[2], key[0], key[1])
                return 200, _status(200, "deleted")
            if self.headers["Content-Type"] != "application/merge-patch+json":
                return 415, _status(415, "unsupported media type")
            asked = sent.get("metadata", {}).get("resourceVersion")
            if asked is not None and asked != before["metadata"]["resourceVersion"]:
                return 409, _status(409, "the object has been modified")
            after = merged(before, sent)
            annotations = after["metadata"].get("annotations", {})
            parts = {part: after[part] for part in ("spec", "status") if part in after}
            return 200, api.put(key[2], key[0], key[1], annotations=annotations, **parts)

    def _list(self, kind: str, namespace: str, asked: dict[str, str]) -> None:
        with self.played.changed:
            page = self._page(kind, namespace, asked)
        if page is None:
            self._fail(410, "The provided continue parameter is too old.")
        else:
            self._answer(200, page)

    def _page(self, kind: str, namespace: str, asked: dict[str, str]) -> Json | None:
        api, selector, limit = self.played, asked.get("labelSelector", ""), int(asked["limit"])
        if token := asked.get("continue"):
            if token not in api.pages:
                return None
            version, items = api.pages.pop(token)
        else:
            mine = [thing for key, thing in api.objects.items() if key[0] == kind and namespace in ("", key[1])]
            mine = [thing for thing in mine if _has_fields(thing, asked.get("fieldSelector", ""))]
            version, items = api.version, [thing for thing in mine if _matches(thing, selector)]
        metadata = {"resourceVersion": str(version)}
        if len(items) > limit:
            metadata["continue"] = str(uuid.uuid4())
            api.pages[metadata["continue"]] = (version, items[limit:])
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    def _watch(self, kind: str, namespace: str, asked: dict[str, str]) -> None:
        since, generation = int(asked["resourceVersion"]), self.played.generation
        if since < self.played.compacted and self.played.status_410:
            self._fail(410, "too old resource version")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        until = time.monotonic() + float(asked["timeoutSeconds"])
        while not self.played.over and time.monotonic() < until:
            is_gone, news, version = self._await_news(since, generation, until)
            if is_gone:
                self._line({"type": "ERROR", "object": _status(410, "too old resource version")})
                break
            for event in news:
                if _has_fields(event.now, asked.get("fieldSelector", "")):
                    self._send(event, kind, namespace, asked.get("labelSelector", ""))
            since = version
            if self.played.generation != generation:
                self._chunk(b'{"type": "MODIFIED", "obj')
                self.close_connection = True
                return
            if asked.get("allowWatchBookmarks") == "true":
                self._line({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(since)}}})
        self._chunk(b"")

    def _await_news(self, since: int, generation: int, until: float) -> tuple[bool, list[Event], int]:
        """Return whether the version is compacted, the events after it, and the newest version."""
        api = self.played
        with api.changed:
            left_s = min(_TICK_S, max(0.0, until - time.monotonic()))
            api.changed.wait_for(lambda: api.over or api.generation != generation or api.version > since, left_s)
            if since < api.compacted:
                return True, [], since
            news = list(itertools.takewhile(lambda event: event.version > since, reversed(api.events)))
            return False, news[::-1], api.version

    def _send(self, event: Event, kind: str, namespace: str, selector: str) -> None:
        if event.kind != kind or namespace not in ("", event.now["metadata"]["namespace"]):
            return
        matched = event.before is not None and _matches(event.before, selector)
        matches = event.type != "DELETED" and _matches(event.now, selector)
        if matched or matches:
            type_ = event.type if matched and matches else "ADDED" if matches else "DELETED"
            self._line({"type": type_, "object": event.now})

    def _line(self, what: Json) -> None:
        self._chunk(json.dumps(what, ensure_ascii=False).encode() + b"\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _fail(self, code: int, message: str) -> None:
        self._answer(code, _status(code, message))

    def _answer(self, status: int, what: Json) -> None:
        content = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _status(code: int, message: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
