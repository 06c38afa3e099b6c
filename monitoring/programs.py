"""Copies of the programs that jobs are started from, by content; where each of them lies on which cluster.

In the database, so that web and workers need share nothing else, and the backup of the one holds the other.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.fields.json import KT
from django.db.models.functions import RowNumber

from monitoring import audit
from monitoring.engine.client import FlinkClient
from monitoring.engine_calls import Call, call_all
from monitoring.models import Cluster, Engine, Job, LaunchVersion, PlacedProgram, Program, ProgramPart, RestartAttempt
from monitoring.models.recovery import ENDED

_PART = 1024 * 1024
# Going back further than so many versions takes the program's file again.
VERSIONS_KEPT = 10
_AT_ONCE = 20
# One that was just uploaded is in no record yet.
_NEW = timedelta(days=1)


@transaction.atomic
def keep(cluster: Cluster, jar_id: str, name: str, content: bytes, by: str, now: datetime) -> Program:
    """Remember what the cluster has under `jar_id`. The same content is stored once, however often it is uploaded."""
    digest = hashlib.sha256(content).hexdigest()
    program, new = Program.objects.get_or_create(
        sha256=digest, defaults={"name": name, "size": len(content), "uploaded_by": by, "uploaded_at": now}
    )
    if new:
        slices = (content[start : start + _PART] for start in range(0, len(content), _PART))
        for number, part in enumerate(slices):
            ProgramPart.objects.create(program=program, number=number, content=part)
    placed(cluster, jar_id, program)
    return program


def placed(cluster: Cluster, jar_id: str, program: Program) -> None:
    PlacedProgram.objects.update_or_create(cluster=cluster, jar_id=jar_id, defaults={"program": program})


def keep_unkept(now: datetime) -> int:
    """Copy the programs of jobs that came to a cluster another way, where it hands them out; returns how many."""
    placed_there = PlacedProgram.objects.filter(cluster=OuterRef("cluster"), jar_id=OuterRef("wanted"))
    ours = Job.objects.filter(launch__kind="waymark", cluster__engine=Engine.SPARK)
    without = ours.annotate(wanted=KT("launch__jar_id")).filter(~Exists(placed_there), wanted__isnull=False)
    wanted = {(job.cluster_id, str((job.launch or {})["jar_id"])): job.cluster for job in _answering(without)}
    answers = call_all([Call(cluster, partial(_fetch, jar_id)) for (_, jar_id), cluster in wanted.items()])
    found = [(each, answer) for each, answer in zip(wanted.items(), answers, strict=True) if isinstance(answer, bytes)]
    for ((_, jar_id), cluster), content in found:
        keep(cluster, jar_id, jar_id.partition("_")[2] or jar_id, content, audit.AUTOMATION, now)
    return len(found)


def _answering(jobs: QuerySet[Job]) -> QuerySet[Job]:
    reachable = jobs.filter(cluster__unreachable_since=None)
    return reachable.select_related("cluster")[:_AT_ONCE]


async def _fetch(jar_id: str, client: FlinkClient) -> bytes:
    return await client.program(jar_id)


def copy_of(cluster: Cluster, jar_id: object) -> Program | None:
    """The kept copy of what lies, or lay, on the cluster under that id."""
    if not isinstance(jar_id, str):
        return None
    found = PlacedProgram.objects.filter(cluster=cluster, jar_id=jar_id).select_related("program").first()
    return found.program if found else None


class Damaged(Exception):
    """The stored copy is not what was uploaded."""


def content_of(program: Program) -> bytes:
    """Raises Damaged."""
    content = b"".join(bytes(part) for part in program.parts.values_list("content", flat=True))
    if hashlib.sha256(content).hexdigest() != program.sha256:
        raise Damaged(f"Waymark's copy of {program} is damaged.")
    return content


def discard_unused(now: datetime) -> int:
    """Remove copies that no job's newest versions, and no restart under way, could ask for; returns how many."""
    needed = {spec.get("jar_id") for spec in _records()}
    used = PlacedProgram.objects.filter(jar_id__in=[jar_id for jar_id in needed if jar_id]).values("program")
    unused = Program.objects.filter(~Q(pk__in=used), uploaded_at__lt=now - _NEW)
    count = unused.count()
    unused.delete()
    return count


def _records() -> list[dict[str, object]]:
    by_age = Window(RowNumber(), partition_by=F("job"), order_by=F("number").desc())
    newest = LaunchVersion.objects.annotate(age=by_age).filter(age__lte=VERSIONS_KEPT).values_list("spec", flat=True)
    in_force = Job.objects.exclude(launch=None).values_list("launch", flat=True)
    under_way = RestartAttempt.objects.exclude(state__in=ENDED).exclude(launch=None).values_list("launch", flat=True)
    return [*newest, *in_force, *(spec for spec in under_way if spec is not None)]
