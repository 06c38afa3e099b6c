"""A job before it runs: its program and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class JobGraph:
    """A submitted job: everything that a job manager needs to start it again, and nothing that changes while it runs.

    `jar_id` names the uploaded program file (`<uuid>_<name>`), `entry_class` is `module:function` as in Flink's
    `entryClass`; `configuration` holds Flink's keys (`execution.checkpointing.interval`, …) and `spark.*` keys, text.
    `lower_bounds` are those of the last resource requirements, by vertex ID. `is_automatic_restore`: no person
    requested the restore of `savepoint_path`. `imported_queries` are those of the snapshot at that path.
    """

    job_id: str
    name: str
    jar_id: str
    entry_class: str
    program_args: tuple[str, ...] = ()
    parallelism: int | None = None
    savepoint_path: str | None = None
    allow_non_restored_state: bool = False
    claim_mode: str = "NO_CLAIM"
    configuration: Mapping[str, str] = field(default_factory=dict)
    submitted_ms: int = 0
    lower_bounds: Mapping[str, int] = field(default_factory=dict)
    is_automatic_restore: bool = False
    imported_queries: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        mappings = {"configuration": dict(self.configuration), "lower_bounds": dict(self.lower_bounds)}
        lists = {"program_args": list(self.program_args), "imported_queries": list(self.imported_queries)}
        return {**asdict(self), **lists, **mappings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobGraph:
        """Return the graph that `to_json` wrote. Raise KeyError, TypeError or ValueError on anything else."""
        configuration = dict(data["configuration"])
        tuples = {
            "program_args": tuple(data["program_args"]),
            "imported_queries": tuple(data.get("imported_queries", ())),
        }
        graph = cls(**{**data, **tuples, "configuration": configuration})
        texts = (graph.job_id, graph.name, graph.jar_id, graph.entry_class, graph.claim_mode)
        arguments = (*graph.program_args, *graph.imported_queries)
        more = (graph.savepoint_path or "", *arguments, *configuration, *configuration.values())
        for text in (*texts, *more):
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is not a text")
        return graph
