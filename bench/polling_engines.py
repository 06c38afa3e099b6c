"""Simulate clusters with Flink's REST API in a separate process: many jobs with checkpoints at a fixed rate.

The responses have the format of those recorded from a Flink 2.3 cluster (`tests/flink_samples`). The checkpoints of a
job depend only on the plan and the time. So the benchmark can compute them from the plan, without data from this
process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import md5
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parents[1] / "tests" / "flink_samples"
SOURCE, COUNT = "6bf01baa9d2ca23a3ef7ce311722523d", "f3972bd41bae29c99f67c3c4998870ba"


@dataclass(frozen=True)
class Plan:
    """The simulated clusters, jobs and checkpoints.

    The measurement begins at `origin_ms`. By then every job has `before` checkpoints, so that responses have their full
    size. The checkpoints of a job are `interval_ms` apart, with a different phase for each job, and take `duration_ms`.
    """

    clusters: int
    jobs: int  # of each cluster
    origin_ms: int
    interval_ms: int = 60_000
    duration_ms: int = 800
    before: int = 10
    history: int = 10
    first_port: int = 0
    terminal_jobs: int = 0  # ended jobs of each cluster, in addition to `jobs`

    def cluster(self, number: int) -> list[Job]:
        return [Job(self, number, index) for index in range(self.jobs)]


class Job:
    def __init__(self, plan: Plan, cluster: int, index: int) -> None:
        self.plan = plan
        self.id = md5(f"{cluster}/{index}".encode(), usedforsecurity=False).hexdigest()
        self.name = f"orders-{cluster:02}-{index:03}"
        position = cluster * plan.jobs + index
        # The golden ratio spreads any number of phases evenly.
        self._phase_ms = int(position * 0.618034 % 1 * plan.interval_ms)
        self._first_ms = plan.origin_ms + self._phase_ms - (plan.before + 1) * plan.interval_ms
        self._answer: tuple[tuple[int, bool], bytes] = (-1, False), b""

    def triggered_ms(self, checkpoint_id: int) -> int:
        return self._first_ms + checkpoint_id * self.plan.interval_ms

    def ended_ms(self, checkpoint_id: int) -> int:
        return self.triggered_ms(checkpoint_id) + self.plan.duration_ms

    def newest(self, now_ms: int) -> int:
        """Return the id of the last triggered checkpoint. Ids begin with 1."""
        return (now_ms - self._first_ms) // self.plan.interval_ms

    def completed(self, now_ms: int) -> int:
        """Return the id of the newest completed checkpoint."""
        return (now_ms - self.plan.duration_ms - self._first_ms) // self.plan.interval_ms

    def checkpoints(self, now_ms: int) -> bytes:
        newest, completed = self.newest(now_ms), self.completed(now_ms)
        key = (newest, newest == completed)
        if self._answer[0] != key:
            self._answer = key, _answer(self._checkpoints(newest, completed))
        return self._answer[1]

    def _checkpoints(self, newest: int, completed: int) -> dict[str, Any]:
        sample = _sample("checkpoints")
        history = [self._stats(one, completed) for one in range(newest, max(0, newest - self.plan.history), -1)]
        in_progress = newest - completed
        counts = {"restored": 0, "total": newest, "in_progress": in_progress, "completed": completed, "failed": 0}
        latest = {**sample["latest"], "completed": self._stats(completed, completed)}
        return {"counts": counts, "summary": sample["summary"], "latest": latest, "history": history}

    def _stats(self, one: int, completed: int) -> dict[str, Any]:
        triggered = self.triggered_ms(one)
        stats = {**_sample("checkpoint_details"), "id": one, "trigger_timestamp": triggered, "tasks": {}}
        stats["external_path"] = f"file:/data/flink/run/cp/{self.id}/chk-{one}"
        stats["latest_ack_timestamp"] = triggered + self.plan.duration_ms
        stats["end_to_end_duration"] = self.plan.duration_ms
        stats["discarded"] = one < completed
        if one > completed:
            stats |= {"className": "in_progress", "status": "IN_PROGRESS", "num_acknowledged_subtasks": 2}
            del stats["external_path"], stats["discarded"]
        return stats

    def details(self, one: int, now_ms: int) -> bytes | None:
        newest, completed = self.newest(now_ms), self.completed(now_ms)
        if not newest - self.plan.history < one <= newest:
            return None
        tasks = {key: {**task, "id": one} for key, task in _sample("checkpoint_details")["tasks"].items()}
        return _answer({**self._stats(one, completed), "tasks": tasks})

    def subtasks(self, one: int) -> bytes:
        return _answer({**_sample("checkpoint_subtasks"), "id": one})

    def overview(self, now_ms: int) -> dict[str, Any]:
        (sample,) = _sample("jobs_overview")["jobs"]
        started = self._first_ms - 60_000
        known = {"jid": self.id, "name": self.name, "start-time": started, "last-modification": started + 4_000}
        return {**sample, **known, "duration": now_ms - started}

    def other(self, rest: str, now_ms: int) -> bytes | None:
        """Return a response that Waymark requests once for each run."""
        match rest:
            case "":
                return _answer({**_sample("job"), **self.overview(now_ms)})
            case "config":
                return _answer({**_sample("job_config"), "jid": self.id, "name": self.name})
            case "checkpoints/config":
                return _answer({**_sample("checkpoints_config"), "interval": self.plan.interval_ms})
            case "exceptions":
                return _answer(_sample("exceptions_none"))
        return None


class Cluster:
    """A simulated cluster that answers requests. `asked` counts the requests by kind."""

    def __init__(self, plan: Plan, number: int, asked: Counter[str]) -> None:
        self.hangs = False
        self._plan = plan
        self._jobs = {job.id: job for job in plan.cluster(number)}
        self._old = [self._ended(number, index) for index in range(plan.terminal_jobs)]
        self._asked = asked

    def answer(self, path: str) -> bytes | None:
        """Return the response, or None to leave the connection open without a response."""
        if self.hangs:
            self._asked["hung"] += 1
            return None
        now_ms = time.time_ns() // 1_000_000
        parts = path.split("/", 3)
        job = self._jobs.get(parts[2]) if len(parts) > 2 else None
        if job is None:
            return self._cluster_answer(path, now_ms)
        return self._job_answer(job, parts[3] if len(parts) > 3 else "", now_ms) or _NOT_FOUND

    def _job_answer(self, job: Job, rest: str, now_ms: int) -> bytes | None:
        if rest == "checkpoints":
            self._asked["checkpoints"] += 1
            return job.checkpoints(now_ms)
        if rest.startswith("checkpoints/details/"):
            parts = rest.split("/")
            self._asked["subtasks" if len(parts) > 3 else "details"] += 1
            return job.subtasks(int(parts[2])) if len(parts) > 3 else job.details(int(parts[2]), now_ms)
        self._asked["other"] += 1
        return job.other(rest, now_ms)

    def _cluster_answer(self, path: str, now_ms: int) -> bytes:
        self._asked["cluster"] += 1
        match path:
            case "/jobs/overview":
                return _answer({"jobs": [*(job.overview(now_ms) for job in self._jobs.values()), *self._old]})
            case "/overview":
                return _answer(_sample("overview"))
            case "/config":
                return _answer(_sample("config"))
            case "/jobmanager/config":
                return _answer([{"key": "web.checkpoints.history", "value": str(self._plan.history)}])
            case "/_asked":
                return _answer(self._asked)
            case "/_hang" | "/_answer":
                self.hangs = path == "/_hang"
                return _answer({})
        return _NOT_FOUND

    def _ended(self, number: int, index: int) -> dict[str, Any]:
        (sample,) = _sample("jobs_overview")["jobs"]
        key = md5(f"{number}/old/{index}".encode(), usedforsecurity=False).hexdigest()
        ended = self._plan.origin_ms - 86_400_000 + index
        name = {"jid": key, "name": f"backfill-{index % 50}", "state": "FINISHED"}
        return {**sample, **name, "start-time": ended - 60_000, "end-time": ended, "last-modification": ended}


class Connection(asyncio.Protocol):
    """A minimal HTTP/1.1 server connection for GET requests, with keep-alive."""

    def __init__(self, answer: Callable[[str], bytes | None]) -> None:
        self._answer = answer
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            path = self._read.split(b" ", 2)[1].decode()
            self._read = self._read[end + 4 :]
            answer = self._answer(path)
            if answer is not None:
                self._transport.write(answer)


@cache
def _sample(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((SAMPLES / f"{name}.json").read_text())
    return read


def _answer(body: object, status: str = "200 OK") -> bytes:
    content = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json; charset=UTF-8\r\n"
        f"Access-Control-Allow-Origin: *\r\nconnection: keep-alive\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


_NOT_FOUND = _answer({"errors": ["org.apache.flink.runtime.rest.NotFoundException: not here"]}, "404 Not Found")


async def serve(plan: Plan) -> None:
    """Listen on a port for each cluster, print the ports, and serve until the process is killed."""
    loop = asyncio.get_running_loop()
    asked: Counter[str] = Counter()
    servers = []
    for number in range(plan.clusters):
        cluster = Cluster(plan, number, asked)
        port = plan.first_port + number if plan.first_port else 0
        servers.append(await loop.create_server(lambda each=cluster: Connection(each.answer), "127.0.0.1", port))  # type: ignore[misc]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.Event().wait()


def arguments(plan: Plan) -> list[str]:
    """Return the arguments of the Python interpreter that simulate `plan`."""
    return ["-m", "bench.polling_engines", json.dumps(asdict(plan))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", help="a Plan as JSON")
    asyncio.run(serve(Plan(**json.loads(parser.parse_args().plan))))
