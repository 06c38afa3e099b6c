"""The program of a job, as its FlinkDeployment or FlinkSessionJob says, and its change by a JSON merge patch.

It is a launch record of the kind `flink-operator`: image, jar_uri, entry_class (texts, "" for none), program_args (a
list of texts) and parallelism (None: Flink's default). Arguments may contain secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from monitoring.kubernetes.api import KubernetesApi
from monitoring.kubernetes.credentials import connection_of
from monitoring.kubernetes.job_resources import JobResource
from monitoring.kubernetes.kinds import FLINK_DEPLOYMENT, Json, object_in, text_in
from monitoring.models import FoundResource

KIND = "flink-operator"
Record = Mapping[str, object]
# Where the resource has each value, within `spec`.
_PLACES = {
    "image": ("image",),
    "jar_uri": ("job", "jarURI"),
    "entry_class": ("job", "entryClass"),
    "program_args": ("job", "args"),
    "parallelism": ("job", "parallelism"),
}
_LONGEST_ARGUMENT = 100_000
# A page waits for this long, and then has a link to try again.
_READ_WITHIN_S = 3.0


@dataclass(frozen=True)
class ProgramChange:
    """The change of a job's program: the launch records before and after it."""

    was: Record
    now: Record

    @classmethod
    def from_json(cls, value: Mapping[str, Record]) -> ProgramChange:
        return cls(value["was"], value["now"])

    def as_json(self) -> dict[str, object]:
        return {"was": dict(self.was), "now": dict(self.now)}

    @property
    def undone(self) -> ProgramChange:
        return ProgramChange(self.now, self.was)

    @property
    def fields(self) -> list[str]:
        return [name for name in _PLACES if self.was.get(name) != self.now.get(name)]


def fields_of(resource: JobResource) -> list[str]:
    """Return the fields that the kind of resource has: a session job uses the image of its cluster."""
    return [name for name in _PLACES if name != "image" or resource.resource_kind is FLINK_DEPLOYMENT]


def read_program(row: FoundResource) -> Record:
    """Ask Kubernetes for the program. `row`: the resource of the job, with its source.

    Raises:
        EngineError: Kubernetes does not answer, refuses the request, or no longer has the resource.
    """
    target = JobResource.of(row)
    connection = connection_of(row.source)
    limit_s = min(connection.request_limit_s, _READ_WITHIN_S)

    async def read() -> Json:
        async with KubernetesApi(replace(connection, request_limit_s=limit_s)) as api:
            return await api.read(target.resource_kind, target.namespace, target.name)

    return program_in(asyncio.run(read()))


def program_in(resource: Json) -> Record:
    spec = object_in(resource.get("spec"))
    job = object_in(spec.get("job"))
    arguments, parallelism = job.get("args"), job.get("parallelism")
    return {
        "kind": KIND,
        "image": text_in(spec, "image"),
        "jar_uri": text_in(job, "jarURI", 2000),
        "entry_class": text_in(job, "entryClass"),
        "program_args": [str(each)[:_LONGEST_ARGUMENT] for each in arguments] if isinstance(arguments, list) else [],
        "parallelism": parallelism if isinstance(parallelism, int) else None,
    }


def patch_of(change: ProgramChange) -> Json:
    """Return the merge patch of `spec`. An empty value removes the field from the resource."""
    spec: dict[str, object] = {}
    job: dict[str, object] = {}
    for name in change.fields:
        *parents, last = _PLACES[name]
        (job if parents else spec)[last] = change.now.get(name) or None
    return spec | ({"job": job} if job else {})


def changed_otherwise(resource: Json, change: ProgramChange) -> Iterable[str]:
    """Yield the fields to change that have neither the value before the change nor the one after it."""
    found = program_in(resource)
    return (name for name in change.fields if found.get(name) not in (change.was.get(name), change.now.get(name)))
