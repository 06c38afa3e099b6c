"""A simulated Kubernetes cluster: a real HTTP server with the API's semantics, a scheduler, and a node.

A second object of the same name is a conflict (409), and so is the deletion of another UID. Deletions are graceful,
objects are deleted with their owners, and requests need a token (401). A pod waits for its node, its image and its
secrets. The test chooses what runs in a container: nothing, a fake driver, or a real process with the pod's
environment and files.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from checkpointing.jobs.launching.kubernetes.api import ApiAccess, KubernetesApi

Json = dict[str, Any]
TOKEN = "the token of the service account"
NAMESPACE = "streams"
_STEP_S = 0.01
_OOM_EXIT_CODE = 137
_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT


class Container(Protocol):
    """What runs in a pod. `exit_code` is None while it runs."""

    @property
    def exit_code(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def output(self) -> bytes: ...


class Idle:
    """A container that does nothing until it is terminated."""

    def __init__(self, pod: Json, files: dict[str, bytes]) -> None:
        self.pod, self.files = pod, files
        self.exit_code: int | None = None
        self.said = b""

    def terminate(self) -> None:
        self.exit_code = 143

    def kill(self) -> None:
        self.exit_code = 137

    def output(self) -> bytes:
        return self.said


class RealProcess:
    """A container whose command is a process on this machine, with the pod's environment variables and files."""

    def __init__(self, pod: Json, files: dict[str, bytes], variables: dict[str, str]) -> None:
        [container] = pod["spec"]["containers"]
        for path, content in files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
        for mount in container["volumeMounts"]:
            Path(mount["mountPath"]).mkdir(parents=True, exist_ok=True)
        work = Path(container["volumeMounts"][1]["mountPath"])
        self._log = work.with_name("container.log")
        python, *arguments = container["command"]
        assert python == "python3"
        image = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "JDK_JAVA_OPTIONS") if name in os.environ}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd="/",
                env={**image, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        if self.process.returncode is None and os.waitid(os.P_PID, self.process.pid, _ENDED) is not None:
            # A container's processes end with its first process. Kill them before the PID is reaped and reused.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
            self.process.wait()
        code = self.process.returncode
        return code if code is None or code >= 0 else 128 - code

    def terminate(self) -> None:
        if self.exit_code is None:
            self.process.terminate()

    def kill(self) -> None:
        if self.exit_code is None:
            os.killpg(self.process.pid, 9)

    def output(self) -> bytes:
        return self._log.read_bytes()


@dataclass
class _Node:
    """What a Kubernetes node knows about one of its pods."""

    container: Container | None = None
    lines: list[tuple[str, bytes]] = field(default_factory=list)
    read: int = 0
    is_out_of_memory: bool = False
    deadline_s: float | None = None
    is_reported: bool = False


Run = Callable[[Json, dict[str, bytes], dict[str, str]], Container]


class PlayedKubernetes:
    """A cluster with the switches `schedules`, `pulls_images`, `node_answers` and `is_away` (the whole API).

    `away_for` and `refuses` hold calls that fail. Calls in `lost` are executed, but their answers are lost, once each.
    `calls` has all calls so far. A call is a method and a kind: ("POST", "pods").
    """

    def __init__(self, directory: Path, run: Run | None = None) -> None:
        self._run = run or (lambda pod, files, variables: Idle(pod, files))
        self._directory = directory
        self.lock = threading.RLock()
        self.pods: dict[str, Json] = {}
        self.secrets: dict[str, Json] = {}
        self.nodes: dict[str, _Node] = {}
        self.created: list[Json] = []
        self.deleted: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.schedules = True
        self.pulls_images = True
        self.node_answers = True
        self.is_away = False
        self.away_for: set[tuple[str, str]] = set()
        self.lost: list[tuple[str, str]] = []
        self.refuses: dict[tuple[str, str], tuple[int, str, str]] = {}
        self.over = threading.Event()
        self._versions = itertools.count(1)
        self._server = _Server(self)

    @property
    def access(self) -> ApiAccess:
        token = self._directory / "token"
        token.write_text(TOKEN)
        return ApiAccess(f"http://127.0.0.1:{self._server.server_address[1]}", token, None, NAMESPACE)

    def api(self) -> KubernetesApi:
        return KubernetesApi(self.access, timeout_s=5.0)

    @contextlib.contextmanager
    def serving(self) -> Iterator[PlayedKubernetes]:
        threads = [
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}),
            threading.Thread(target=self._work),
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.over.set()
            self._server.shutdown()
            for thread in threads:
                thread.join()
            self._server.server_close()
            for node in self.nodes.values():
                if node.container is not None:
                    node.container.kill()

    # --- events of pods ---

    def pod(self, name: str | None = None) -> Json:
        """Return a copy of the pod of this name, or of the only pod."""
        with self.lock:
            [found] = [each for key, each in self.pods.items() if name in (None, key)]
            return copy.deepcopy(found)

    def container(self, name: str | None = None) -> Any:
        """Return the pod's container, or None before it runs."""
        with self.lock:
            found = [node.container for key, node in self.nodes.items() if name in (None, key) and key in self.pods]
        return found[0] if len(found) == 1 else None

    def evict(self, name: str, message: str) -> None:
        with self.lock:
            node = self.nodes[name]
            if node.container is not None:
                node.container.kill()
            self.pods[name]["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}

    def run_out_of_memory(self, name: str) -> None:
        with self.lock:
            node = self.nodes[name]
            assert node.container is not None
            node.is_out_of_memory = True
            node.container.kill()

    def delete(self, name: str, grace_s: float = 30.0) -> None:
        """Delete a pod, as a person or a drained node does."""
        with self.lock:
            self._delete(self.pods[name], grace_s)

    # --- scheduler and node ---

    def _work(self) -> None:
        while not self.over.wait(_STEP_S):
            with self.lock:
                for name, pod in list(self.pods.items()):
                    before = copy.deepcopy(pod["status"])
                    self._step(pod, self.nodes[name])
                    if pod["status"] != before:
                        pod["metadata"]["resourceVersion"] = str(next(self._versions))

    def _step(self, pod: Json, node: _Node) -> None:
        status, metadata = pod["status"], pod["metadata"]
        if not self.node_answers:
            return
        self._read_log(node)
        code = None if node.container is None else node.container.exit_code
        if code is not None and status.get("reason") != "Evicted":
            reason = "OOMKilled" if node.is_out_of_memory else "Completed" if code == 0 else "Error"
            ended = {"exitCode": _OOM_EXIT_CODE if node.is_out_of_memory else code, "reason": reason}
            status["phase"] = "Succeeded" if code == 0 else "Failed"
            _set_state(pod, {"terminated": ended})
        if metadata.get("deletionTimestamp") is not None:
            self._end(pod, node, has_ended=node.container is None or code is not None)
        elif node.container is None and status["phase"] == "Pending":
            self._start(pod, node)

    def _start(self, pod: Json, node: _Node) -> None:
        [container] = pod["spec"]["containers"]
        if not self.schedules:
            message = "0/3 nodes are available: 3 Insufficient memory."
            unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            pod["status"]["conditions"] = [unscheduled]
            return
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        if not self.pulls_images:
            message = f'Back-off pulling image "{container["image"]}"'
            _set_state(pod, {"waiting": {"reason": "ImagePullBackOff", "message": message}})
            return
        try:
            files, variables = self._mounted(pod), self._variables(container)
        except KeyError:
            _set_state(pod, {"waiting": {"reason": "ContainerCreating"}})
            return
        node.container = self._run(pod, files, variables)
        pod["status"]["phase"] = "Running"
        _set_state(pod, {"running": {"startedAt": _now()}})

    def _end(self, pod: Json, node: _Node, *, has_ended: bool) -> None:
        if has_ended:
            self._remove(pod)
            return
        assert node.container is not None
        if not node.is_reported:
            node.is_reported = True
            node.container.terminate()
        elif node.deadline_s is not None and time.monotonic() > node.deadline_s:
            node.container.kill()

    def _remove(self, pod: Json) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.deleted.append(name)
        del self.pods[name]
        owned = [
            key
            for key, secret in self.secrets.items()
            if any(owner["uid"] == uid for owner in secret["metadata"].get("ownerReferences", ()))
        ]
        for key in owned:
            del self.secrets[key]

    def _mounted(self, pod: Json) -> dict[str, bytes]:
        [container] = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        files: dict[str, bytes] = {}
        for mount in container["volumeMounts"]:
            source = volumes[mount["name"]].get("secret")
            if source is not None:
                data = self.secrets[source["secretName"]]["data"]
                items = source.get("items") or [{"key": key, "path": key} for key in data]
                files |= {f"{mount['mountPath']}/{each['path']}": base64.b64decode(data[each["key"]]) for each in items}
        return files

    def _variables(self, container: Json) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in container["env"]:
            source = each.get("valueFrom", {})
            if "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                value = base64.b64decode(self.secrets[reference["name"]]["data"][reference["key"]]).decode()
            elif "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "status.podIP"
                value = "127.0.0.1"
            else:
                value = each["value"].replace("$$(", "$(")
            found[each["name"]] = value
        return found

    def _read_log(self, node: _Node) -> None:
        if node.container is None:
            return
        new = node.container.output()[node.read :]
        whole = new[: new.rfind(b"\n") + 1]
        node.read += len(whole)
        for line in whole.splitlines(keepends=True):
            node.lines.append((_now(), line))

    # --- the API ---

    def create(self, kind: str, namespace: str, what: Json) -> tuple[int, Json]:
        objects = self.pods if kind == "pods" else self.secrets
        name = what["metadata"]["name"]
        with self.lock:
            if name in objects:
                return _status(409, "AlreadyExists", f'{kind} "{name}" already exists')
            if what["metadata"]["namespace"] != namespace:
                return _status(400, "BadRequest", "the namespace of the object does not match the request's")
            made = copy.deepcopy(what)
            made["metadata"] |= {
                "uid": str(uuid.uuid4()),
                "resourceVersion": str(next(self._versions)),
                "creationTimestamp": _now(),
            }
            if kind == "pods":
                made["status"] = {"phase": "Pending"}
                self.nodes[name] = _Node()
                self.created.append(made)
            objects[name] = made
            return 201, copy.deepcopy(made)

    def get(self, name: str) -> tuple[int, Json]:
        with self.lock:
            return (200, copy.deepcopy(self.pods[name])) if name in self.pods else _not_found(name)

    def list(self, selector: str) -> tuple[int, Json]:
        wanted = dict(each.split("=", 1) for each in selector.split(",") if each)
        with self.lock:
            items = [
                copy.deepcopy(pod)
                for pod in self.pods.values()
                if wanted.items() <= pod["metadata"].get("labels", {}).items()
            ]
            version = str(next(self._versions))
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}

    def remove(self, name: str, options: Json) -> tuple[int, Json]:
        with self.lock:
            pod = self.pods.get(name)
            if pod is None:
                return _not_found(name)
            uid = options.get("preconditions", {}).get("uid")
            if uid not in (None, pod["metadata"]["uid"]):
                return _status(409, "Conflict", f"the UID in the precondition ({uid}) does not match")
            self._delete(pod, options.get("gracePeriodSeconds", 30))
            return 200, copy.deepcopy(pod)

    def _delete(self, pod: Json, grace_s: float) -> None:
        assert grace_s > 0, "the pod would be gone before its node has ended it"
        node = self.nodes[pod["metadata"]["name"]]
        scheduled = any(
            each["type"] == "PodScheduled" and each["status"] == "True" for each in pod["status"].get("conditions", ())
        )
        if not scheduled:
            self._remove(pod)
            return
        pod["metadata"].setdefault("deletionTimestamp", _now())
        deadline = time.monotonic() + grace_s
        node.deadline_s = deadline if node.deadline_s is None else min(node.deadline_s, deadline)

    def log_lines(self, name: str, since: str) -> Iterator[bytes] | None:
        """Yield the log's lines until the container has ended, and b"" while there is no new line."""
        with self.lock:
            node = self.nodes.get(name)
            if node is None or node.container is None or name not in self.pods:
                return None
        return self._followed(name, node, since)

    def _followed(self, name: str, node: _Node, since: str) -> Iterator[bytes]:
        sent = 0
        while not self.over.is_set():
            with self.lock:
                new = node.lines[sent:]
                ended = node.container is None or node.container.exit_code is not None
                ended = ended and node.read == len(node.container.output() if node.container else b"")
            sent += len(new)
            yield from (f"{stamp} ".encode() + line for stamp, line in new if stamp[:19] >= since[:19])
            if ended:
                return
            yield b""
            time.sleep(_STEP_S)


def real_process(pod: Json, files: dict[str, bytes], variables: dict[str, str]) -> Container:
    return RealProcess(pod, files, variables)


def _set_state(pod: Json, state: Json) -> None:
    [container] = pod["spec"]["containers"]
    pod["status"]["containerStatuses"] = [{"name": container["name"], "state": state, "restartCount": 0}]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "000Z")


def _status(code: int, reason: str, message: str) -> tuple[int, Json]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                  "message": message}  # fmt: skip


def _not_found(name: str) -> tuple[int, Json]:
    return _status(404, "NotFound", f'pods "{name}" not found')


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cluster: PlayedKubernetes) -> None:
        self.cluster = cluster
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *arguments: Any) -> None:
        pass

    def _serve(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        _, _, _, namespaces, namespace, kind, *rest = url.path.split("/")
        query = dict(urllib.parse.parse_qsl(url.query))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        call = (self.command, "log" if rest[1:] == ["log"] else kind)
        with self.server.cluster.lock:
            self.server.cluster.calls.append(call)
            is_away = self.server.cluster.is_away or call in self.server.cluster.away_for
            refusal = self.server.cluster.refuses.get(call)
        assert namespaces == "namespaces"
        if is_away:
            self._hang_up()
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(*_status(401, "Unauthorized", "Unauthorized"))
        elif refusal is not None:
            self._answer(*_status(*refusal))
        elif call[1] == "log":
            self._stream(rest[0], query)
        else:
            answer = self._done(kind, namespace, rest, query, body)
            with self.server.cluster.lock:
                is_lost = call in self.server.cluster.lost
                if is_lost:
                    self.server.cluster.lost.remove(call)
            self._hang_up() if is_lost else self._answer(*answer)

    def _done(self, kind: str, namespace: str, rest: list[str], query: Json, body: Json) -> tuple[int, Json]:
        match self.command:
            case "POST":
                return self.server.cluster.create(kind, namespace, body)
            case "DELETE":
                return self.server.cluster.remove(rest[0], body)
            case _ if rest:
                return self.server.cluster.get(rest[0])
            case _:
                return self.server.cluster.list(query.get("labelSelector", ""))

    def _hang_up(self) -> None:
        self.close_connection = True

    def _answer(self, status: int, what: Json) -> None:
        content = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, name: str, query: Json) -> None:
        lines = self.server.cluster.log_lines(name, query.get("sinceTime", ""))
        if lines is None:
            self._answer(*_not_found(name))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            for line in lines:
                if self.server.cluster.is_away:
                    return
                self.wfile.write(line)
                self.wfile.flush()
