"""A simulated ResourceManager of YARN over real HTTP, with the shapes of its answers.

It selects by states, types, tags, the time of the end and a limit, as YARN does. The switches make it be on standby,
hide what an account may not see, answer with something else, or never answer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.monitoring.discovery.played_server import PlayedHandler, PlayedServer

Json = dict[str, Any]
STARTED = 1_700_000_000_000
ENDED = ("FINISHED", "FAILED", "KILLED")
_SELECTABLE = {"resourceRequests", "timeouts", "appNodeLabelExpression", "amNodeLabelExpression", "resourceInfo"}


@dataclass
class PlayedYarn(PlayedServer):
    """The server. `apps` is by id. `standby`: the URL of the active one, "none" if no one is, "" if it is active."""

    apps: dict[str, Json] = field(default_factory=dict)
    standby: str = ""
    authorization: str = ""
    kerberos: bool = False
    hidden: bool = False
    silent: bool = False
    answer: tuple[int, bytes] | None = None
    queries: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self.listen(Handler)

    def start(self, name: str = "orders", state: str = "RUNNING", **values: Any) -> str:
        """Submit an application, and return its id."""
        number = next(self._numbers)
        id_ = f"application_{STARTED}_{number:04d}"
        app: Json = {
            "id": id_,
            "user": "flink",
            "name": name,
            "queue": "root.prod",
            "state": state,
            "finalStatus": "UNDEFINED",
            "progress": 100.0,
            "trackingUI": "ApplicationMaster" if state == "RUNNING" else "UNASSIGNED",
            "trackingUrl": f"http://rm:8088/proxy/{id_}/",
            "diagnostics": "",
            "clusterId": STARTED,
            "applicationType": "Apache Flink",
            "applicationTags": "",
            "priority": 0,
            "startedTime": STARTED + number * 1000,
            "launchTime": STARTED + number * 1000 + 200,
            "finishedTime": 0,
            "elapsedTime": 30_000,
            "amContainerLogs": f"http://node1:8042/node/containerlogs/container_e1_{STARTED}_{number:04d}_01_000001/flink",
            "amHostHttpAddress": "node1:8042",
            "amRPCAddress": f"node{number}:{40_000 + number}",
            "masterNodeId": "node1:45454",
            "allocatedMB": 2048,
            "runningContainers": 2,
            "logAggregationStatus": "NOT_START",
            "unmanagedApplication": False,
            "amNodeLabelExpression": "",
            "resourceRequests": [{"priority": 0, "resourceName": "*"}] * 20,
        }
        if state != "RUNNING":
            del app["amRPCAddress"]
        self.apps[id_] = app | values
        return id_

    def run(self, id_: str) -> None:
        self.apps[id_] |= {"state": "RUNNING", "amRPCAddress": "node9:49000", "trackingUI": "ApplicationMaster"}

    def end(self, id_: str, state: str = "FINISHED", status: str = "SUCCEEDED", diagnostics: str = "") -> None:
        finished = {"finishedTime": int(time.time() * 1000), "trackingUI": "History"}
        self.apps[id_] |= {"state": state, "finalStatus": status, "diagnostics": diagnostics, **finished}

    def live(self) -> dict[str, Json]:
        return {id_: app for id_, app in self.apps.items() if app["state"] not in ENDED}


class Handler(PlayedHandler):
    played: PlayedYarn

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        yarn = self.played
        yarn.queries.append(asked)
        if yarn.silent:
            with yarn.changed:
                yarn.changed.wait_for(lambda: yarn.over)
            self.close_connection = True
        elif yarn.standby == "none":
            text = b"There is no active RM right now.\nHA Zookeeper Connection State: CONNECTED\n"
            self._send(200, text, "text/plain")
        elif yarn.standby:
            text = f"This is standby RM. The redirect url is: {path}\n".encode()
            self._send(307, text, "text/plain", {"Location": yarn.standby + self.path})
        elif yarn.kerberos:
            self._send(401, b"<html>", "text/html", {"WWW-Authenticate": "Negotiate"})
        elif yarn.authorization and self.headers.get("Authorization") != yarn.authorization:
            self._send(401, b"<html>", "text/html")
        elif yarn.answer is not None:
            self._send(yarn.answer[0], yarn.answer[1], "application/json")
        elif path != "/ws/v1/cluster/apps":
            self._fail(404, "NotFoundException", path)
        elif not {asked.get("deSelects", "resourceRequests")} <= _SELECTABLE:
            self._fail(400, "BadRequestException", "Invalid deSelects string")
        else:
            chosen = list(itertools.islice(self._chosen(asked), int(asked.get("limit", 10**9))))
            self._json(200, {"apps": {"app": chosen} if chosen else None})

    def _chosen(self, asked: dict[str, str]) -> Iterator[Json]:
        states, types = asked["states"].split(","), asked["applicationTypes"].lower().split(",")
        tags = set(filter(None, asked.get("applicationTags", "").split(",")))
        for app in list(self.played.apps.values()):
            matches = app["state"] in states and app["applicationType"].lower() in types
            since = int(asked.get("finishedTimeBegin", 0))
            if matches and app["finishedTime"] >= since and (not tags or tags & set(app["applicationTags"].split(","))):
                yield self._shown(app, asked)

    def _shown(self, app: Json, asked: dict[str, str]) -> Json:
        secret = ("amRPCAddress", "amHostHttpAddress", "amContainerLogs") if self.played.hidden else ()
        dropped = {*secret, *asked.get("deSelects", "").split(",")}
        shown = {name: value for name, value in app.items() if name not in dropped}
        return shown | ({"startedTime": 0, "finishedTime": 0, "elapsedTime": 0} if self.played.hidden else {})

    def _fail(self, status: int, exception: str, message: str) -> None:
        self._json(status, {"RemoteException": {"exception": exception, "message": message, "javaClassName": "x"}})

    def _json(self, status: int, what: Json) -> None:
        self._send(status, json.dumps(what).encode(), "application/json;charset=utf-8")

    def _send(self, status: int, content: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(content)
