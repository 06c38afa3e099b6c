"""The number of state partitions that a job requests, and its changes (Flink's job resource requirements). Pure.

All keyed state of a job is in `spark.sql.shuffle.partitions` partitions. Spark has one such setting per session, so all
stateful vertices have the same parallelism. A source and a sink have one subtask each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import Vertex, VertexKind

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
# Flink has the same limit.
MAX_PARALLELISM = 1 << 15


class InvalidRequirements(ValueError):
    """The requirements are not valid. `problems` has one sentence for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class ParallelismBounds:
    lower: int
    upper: int


Requirements = Mapping[str, ParallelismBounds]


def requested_parallelism(graph: JobGraph) -> int | None:
    """Return the parallelism that the job requests, or None if its state or the default decides."""
    text = graph.configuration.get(SHUFFLE_PARTITIONS, "").strip()
    return int(text) if text.isdigit() else graph.parallelism


def with_parallelism(graph: JobGraph, parallelism: int | None) -> JobGraph:
    """Return `graph` as if it had been submitted with `parallelism`, in the same setting that holds it now."""
    if SHUFFLE_PARTITIONS in graph.configuration and parallelism is not None:
        return replace(graph, configuration={**graph.configuration, SHUFFLE_PARTITIONS: str(parallelism)})
    return replace(graph, parallelism=parallelism)


def requirements_of(graph: JobGraph, vertices: Sequence[Vertex]) -> dict[str, ParallelismBounds]:
    """Return what the job requests now. A request is always fulfilled, so lower bounds only repeat the last request."""
    requested = requested_parallelism(graph)
    found = {}
    for vertex in vertices:
        rescales = vertex.kind is VertexKind.STATEFUL and requested is not None and not _is_alone(vertex, vertices)
        upper = requested if rescales and requested is not None else vertex.parallelism
        found[vertex.id] = ParallelismBounds(min(graph.lower_bounds.get(vertex.id, 1), upper), upper)
    return found


def required_parallelism(requirements: Requirements, vertices: Sequence[Vertex]) -> int:
    """Return the one parallelism that `requirements` request for the stateful vertices. Raise InvalidRequirements."""
    problems = [*_unknown_or_missing(requirements, vertices)]
    problems += [problem for vertex in vertices if vertex.id in requirements
                 for problem in _problems_of(vertex, requirements[vertex.id])]  # fmt: skip
    if problems:
        raise InvalidRequirements(problems)
    stateful = [vertex for vertex in vertices if vertex.kind is VertexKind.STATEFUL]
    if not stateful:
        raise InvalidRequirements(["The job has no stateful vertex: its sources and sinks have one subtask each."])
    return _common_upper_bound(requirements, stateful)


def _unknown_or_missing(requirements: Requirements, vertices: Sequence[Vertex]) -> list[str]:
    known = {vertex.id for vertex in vertices}
    missing = [f"{vertex.id}: the bounds of vertex {vertex.name!r} are missing" for vertex in vertices]
    return [
        *(f"{vertex_id}: the job has no such vertex" for vertex_id in requirements if vertex_id not in known),
        *(text for vertex, text in zip(vertices, missing, strict=True) if vertex.id not in requirements),
    ]


def _problems_of(vertex: Vertex, bounds: ParallelismBounds) -> list[str]:
    most = 1 if vertex.kind is not VertexKind.STATEFUL else MAX_PARALLELISM
    where = f"{vertex.id} ({vertex.name})"
    problems = []
    if bounds.lower < 1:
        problems.append(f"{where}: lowerBound {bounds.lower} is not allowed; at least 1")
    if not 1 <= bounds.upper <= most:
        why = "a source and a sink have one subtask" if most == 1 else f"from 1 to {most}"
        problems.append(f"{where}: upperBound {bounds.upper} is not allowed; {why}")
    elif bounds.lower > bounds.upper:
        problems.append(f"{where}: lowerBound {bounds.lower} is above upperBound {bounds.upper}")
    return problems


def _common_upper_bound(requirements: Requirements, stateful: Sequence[Vertex]) -> int:
    """Return the parallelism of all vertices that can be rescaled. Raise InvalidRequirements.

    A vertex without keys stays at 1. A query that has such a vertex and others cannot be rescaled.
    """
    moving = [vertex for vertex in stateful if not (_is_alone(vertex, stateful) and requirements[vertex.id].upper == 1)]
    requested = {vertex.id: requirements[vertex.id].upper for vertex in moving}
    if len(set(requested.values())) > 1:
        bounds = ", ".join(f"{vertex_id}: {upper}" for vertex_id, upper in requested.items())
        problem = f"upperBound differs between stateful vertices ({bounds}); they share {SHUFFLE_PARTITIONS}"
        raise InvalidRequirements([f"{problem}. Set the same upperBound for all of them"])
    upper = next(iter(requested.values()))
    changed = {vertex.query for vertex in moving if vertex.parallelism != upper}
    stuck = next((vertex for vertex in stateful if _is_alone(vertex, stateful) and vertex.query in changed), None)
    if stuck is not None:
        raise InvalidRequirements(
            [f"{stuck.id} ({stuck.name}) keeps all state in one partition, so Spark cannot rescale its query"]
        )
    return upper


def _is_alone(vertex: Vertex, vertices: Sequence[Vertex]) -> bool:
    """Return whether the vertex has no keys: its state is in one partition, while other vertices have several."""
    most = max(other.parallelism for other in vertices)
    return vertex.kind is VertexKind.STATEFUL and vertex.parallelism == 1 and most > 1
