"""What a job is before it runs: its program and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class JobGraph:
    """A submitted job. Everything that a job manager needs to start it again, and nothing that changes while it runs.

    `jar_id` names the uploaded program file (`<uuid>_<name>`), `entry_class` is `module:function` as in Flink's
    `entryClass`; `configuration` holds Flink's keys (`execution.checkpointing.interval`, …) and `spark.*` keys, text.
    `lower_bounds` are those of the resource requirements last put, by vertex id. `is_automatic_restore`: no person
    asked for the restore of `savepoint_path`.
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

    def to_json(self) -> dict[str, Any]:
        mappings = {"configuration": dict(self.configuration), "lower_bounds": dict(self.lower_bounds)}
        return {**asdict(self), "program_args": list(self.program_args), **mappings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobGraph:
        """The graph that `to_json` wrote; KeyError, TypeError or ValueError on anything else."""
        configuration = dict(data["configuration"])
        graph = cls(**{**data, "program_args": tuple(data["program_args"]), "configuration": configuration})
        texts = (graph.job_id, graph.name, graph.jar_id, graph.entry_class, graph.claim_mode)
        more = (graph.savepoint_path or "", *graph.program_args, *configuration, *configuration.values())
        for text in (*texts, *more):
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is not a text")
        return graph
