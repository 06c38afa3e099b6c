"""The operators of a query as vertices. `plan` reads them from Spark, and `imported` from files, without PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpointing.checkpoint_location.layout import Owner
from checkpointing.ids import stable_id
from checkpointing.model.messages import Vertex, VertexKind


@dataclass(frozen=True)
class QueryPlan:
    """The vertices of one query, by the owner of their files.

    `keyed`: the stateful operators whose state is partitioned by the hash of a key. Other operators (a count over
    everything, a limit) keep their state in one partition. `stateful_from_the_top`: the stateful operators in the order
    in which Spark reports on them.
    """

    query: str
    by_owner: Mapping[tuple[VertexKind, int], Vertex]
    keyed: frozenset[int] = frozenset()
    stateful_from_the_top: tuple[int, ...] = ()

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        return tuple(self.by_owner.values())

    def vertex(self, owner: Owner) -> Vertex | None:
        return self.by_owner.get((owner.kind, owner.index))


def vertex_id(query: str, kind: VertexKind, index: int) -> str:
    """Return an ID that is the same for all restarts and jobs: it depends on the query, the kind and the place."""
    return stable_id(query, kind.value, str(index))
