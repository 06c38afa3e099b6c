"""The jobs of an engine, their operators, and the rows that their sources have read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

from monitoring.engine.errors import Malformed
from monitoring.engine.fields import Fields
from monitoring.reasons.engines import EngineReason

JOB_STATES = frozenset(
    {
        *("INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED"),
        *("RESTARTING", "SUSPENDED", "RECONCILING"),
    }
)
TERMINAL_STATES = frozenset(("FAILED", "CANCELED", "FINISHED"))
_JOB_OVERVIEW = ("name", "state", "start-time", "end-time", "last-modification")


@dataclass(frozen=True)
class JobOverview:
    """A job in the engine's list. `moved_at`: the time of its last change of status, by the engine's clock.

    `started_at` is not the time of submission: a failover of the job manager sets it again. `query_id`: of a watched
    query, "" for other jobs.
    """

    id: str
    name: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    moved_at: datetime | None = None
    query_id: str = ""
    # The raw values of _JOB_OVERVIEW. If they are equal, the job has not changed.
    answer: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, fields: Fields) -> JobOverview:
        return cls(
            id=fields.identifier("jid"),
            name=fields.text("name"),
            state=_state(fields.text("state")),
            started_at=fields.moment("start-time"),
            ended_at=fields.optional_moment("end-time"),
            moved_at=fields.optional_moment("last-modification"),
            query_id=fields.optional_text("query-id"),
            answer=fields.raw_values(_JOB_OVERVIEW),
        )

    @classmethod
    def parse_all(
        cls, fields: Fields, known: Mapping[str, JobOverview]
    ) -> tuple[dict[str, JobOverview], tuple[Malformed, ...]]:
        """Return the readable jobs by ID, and an error for each of the others. Raise Malformed if all are unreadable.

        An unchanged job is the same object as in `known`. This saves time, because lists are long.
        """
        jobs, misread = {}, []
        for job in fields.items("jobs"):
            try:
                read = cls._parse_unless_known(job(), known)
            except Malformed as error:
                misread.append(error)
            else:
                jobs[read.id] = read
        if misread and not jobs:
            raise misread[0]
        return jobs, tuple(misread)

    @classmethod
    def _parse_unless_known(cls, job: Fields, known: Mapping[str, JobOverview]) -> JobOverview:
        key = job.raw.get("jid")
        before = known.get(key) if isinstance(key, str) else None
        return before if before is not None and before.answer == job.raw_values(_JOB_OVERVIEW) else cls.parse(job)


@dataclass(frozen=True)
class Vertex:
    """An operator of the job graph. `inputs`: IDs of the vertices that send to it; None: the engine sent no plan.

    Only sinks of Waymark's job manager have `query` and `after_restore`: what happens to the query's rows after a
    restore. "" means not known.
    """

    id: str
    name: str
    parallelism: int
    status: str
    inputs: tuple[str, ...] | None = None
    query: str = ""
    after_restore: str = ""

    @classmethod
    def parse(cls, fields: Fields, inputs: Mapping[str, tuple[str, ...]], after_restore: Mapping[str, str]) -> Vertex:
        """Read one of the "vertices" of /jobs/:id; `inputs` comes from its "plan", `after_restore` from "queries"."""
        key = fields.identifier("id")
        name, parallelism = fields.text("name"), fields.small("parallelism")
        query = fields.optional_text("query") if fields.raw.get("kind") == "sink" else ""
        known = after_restore.get(query, "")
        return cls(key, name, parallelism, fields.optional_text("status"), inputs.get(key), query, known)

    def as_row(self) -> dict[str, object]:
        """Return the vertex as Run.vertices stores it, without unknown values."""
        row: dict[str, object] = {"id": self.id, "name": self.name, "parallelism": self.parallelism}
        if self.inputs is not None:
            row["inputs"] = list(self.inputs)
        return {**row, "query": self.query, "after_restore": self.after_restore} if self.after_restore else row


def _inputs(fields: Fields) -> dict[str, tuple[str, ...]]:
    """Return the inputs of each vertex by the job's plan, empty where the answer has no plan that can be read."""
    try:
        plan = fields.optional_child("plan")
        return {node.identifier("id"): _sources(node) for node in plan.children("nodes")} if plan else {}
    except Malformed:
        return {}


def _after_restore(fields: Fields) -> dict[str, str]:
    """Return what happens to each query's rows after a restore, by query. Only Waymark's job manager reports it."""
    queries = fields.children("queries") if fields.raw.get("queries") else ()
    return {query.text("name"): query.optional_text("after-restore") for query in queries}


def _sources(node: Fields) -> tuple[str, ...]:
    """Return the ids that `node` of a plan reads from. Flink leaves "inputs" out for a source."""
    return tuple(each.identifier("id") for each in node.children("inputs")) if node.raw.get("inputs") else ()


@dataclass(frozen=True)
class OwnEnd:
    """The end of a job that ended by itself under Waymark's job manager.

    `is_saved`: a savepoint contains the job's whole state, otherwise its checkpoints are kept. `savepoint`: the final
    savepoint, "" if there was no new batch. `state`: the path from which the next run starts, "" if there is none.
    `rows` that the sources read and `batches` count the last attempt only; None: not known.
    """

    is_saved: bool
    savepoint: str
    state: str
    rows: int | None
    batches: int | None

    @classmethod
    def parse(cls, fields: Fields) -> OwnEnd | None:
        """Read /jobs/:id. Return None if the job did not end by itself."""
        end = fields.optional_child("ended-by-itself")
        if end is None or fields.text("state") not in TERMINAL_STATES:
            return None
        counted = [query.amount("batches") for query in fields.children("queries")]
        return cls(
            is_saved=end.flag("is-saved"),
            savepoint=end.optional_text("final-savepoint"),
            state=end.optional_text("state-path"),
            rows=_rows_read(fields),
            batches=None if None in counted else sum(count or 0 for count in counted),
        )

    def as_row(self) -> dict[str, object]:
        """Return the end as Run.outcome stores it."""
        row: dict[str, object] = {"saved": self.is_saved, "savepoint": self.savepoint, "state": self.state}
        return row | {"rows": self.rows, "batches": self.batches}


@dataclass(frozen=True)
class LaunchWait:
    """The reason why Waymark's job manager has not started a job's driver yet: "launch-wait" of /jobs/:id.

    `lacking` is a value of `Lacking` (checkpointing/jobs/launching/admission.py), or unknown from a newer job manager.
    A job in the queue for drivers has `asked`, `free`, `limit`, and `position` (from 1) among `length` waiting jobs. A
    job whose Python environment is being prepared has the remaining fields. The other fields are None.
    """

    lacking: str
    since: datetime | None
    asked: int | None
    free: int | None
    limit: int | None
    position: int | None
    length: int | None
    kind: str | None
    step: str | None
    output: str | None
    failure: str | None

    @classmethod
    def parse(cls, fields: Fields) -> LaunchWait | None:
        """Return None if the job does not wait, or if the engine is Flink."""
        wait = fields.optional_child("launch-wait")
        if wait is None:
            return None
        return cls(
            lacking=wait.text("for"),
            since=wait.optional_moment("since"),
            asked=wait.amount("asked"),
            free=wait.amount("free"),
            limit=wait.amount("limit"),
            position=wait.amount("position"),
            length=wait.amount("length"),
            kind=wait.optional_text("kind") or None,
            step=wait.optional_text("step") or None,
            output=wait.optional_text("output") or None,
            failure=wait.optional_text("failure") or None,
        )

    def as_row(self) -> dict[str, object]:
        """Return the fields that are not None, as Run.launch_wait stores them."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        since = {} if self.since is None else {"since": self.since.isoformat()}
        return {"for": known.pop("lacking"), **known, **since}


@dataclass(frozen=True)
class Position:
    """What a watched query had read after `batch`. Only the transport for directories reports it.

    `watermark`: None if the query has none. `sources`: the offsets of each source as JSON text, "" before its first.
    """

    batch: int
    watermark: datetime | None
    sources: tuple[str, ...]

    @classmethod
    def parse(cls, fields: Fields) -> Position | None:
        position = fields.optional_child("position")
        if position is None:
            return None
        return cls(position.whole("batch"), position.optional_moment("watermark"), tuple(position.texts("sources")))

    def as_row(self) -> dict[str, object]:
        """Return the position as Run.position stores it."""
        watermark = None if self.watermark is None else self.watermark.isoformat()
        return {"batch": self.batch, "watermark": watermark, "sources": list(self.sources)}


def _rows_read(fields: Fields) -> int | None:
    metrics = [vertex.child("metrics") for vertex in fields.children("vertices") if vertex.raw.get("kind") == "source"]
    if not all(each.flag("write-records-complete", default=False) for each in metrics):
        return None
    return sum(each.amount("write-records") or 0 for each in metrics)


@dataclass(frozen=True)
class JobDetail:
    id: str
    name: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    vertices: tuple[Vertex, ...]
    own_end: OwnEnd | None = None
    launch_wait: LaunchWait | None = None
    position: Position | None = None

    @classmethod
    def parse(cls, fields: Fields) -> JobDetail:
        inputs, after_restore = _inputs(fields), _after_restore(fields)
        return cls(
            id=fields.identifier("jid"),
            name=fields.text("name"),
            state=_state(fields.text("state")),
            started_at=fields.moment("start-time"),
            ended_at=fields.optional_moment("end-time"),
            vertices=tuple(Vertex.parse(vertex, inputs, after_restore) for vertex in fields.children("vertices")),
            own_end=OwnEnd.parse(fields),
            launch_wait=LaunchWait.parse(fields),
            position=Position.parse(fields),
        )


@dataclass(frozen=True)
class SourceRows:
    """The rows of a source vertex and its run time in milliseconds, both since the last start of its tasks."""

    rows: int
    duration: int

    @classmethod
    def parse_all(cls, fields: Fields) -> list[SourceRows]:
        """Return the rows of the source vertices. Flink counts the rows that leave a source, Spark those it reads."""
        nodes = fields.child("plan").children("nodes")
        sources = {node.text("id") for node in nodes if not node.raw.get("inputs")}
        return [cls._parse(vertex) for vertex in fields.children("vertices") if vertex.text("id") in sources]

    @classmethod
    def _parse(cls, fields: Fields) -> SourceRows:
        metrics = fields.child("metrics")
        counted = [metrics.amount(name) or 0 for name in ("read-records", "write-records")]
        return cls(max(counted), fields.amount("duration") or 0)


def _state(value: str) -> str:
    if value not in JOB_STATES:
        raise Malformed(EngineReason.NOT_A_JOB_STATE(value=value[:40]))
    return value
