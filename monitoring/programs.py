"""Store copies of the jobs' programs by content, and their IDs on each cluster.

They are in the database, so that web and workers need no shared files, and a backup of the database includes them.
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
# A return to a version older than this many versions needs a new upload of the program.
VERSIONS_KEPT = 10
_AT_ONCE = 20
# A new upload may not be in a launch record yet, so it is kept for this long.
_NEW = timedelta(days=1)


@transaction.atomic
def keep(cluster: Cluster, jar_id: str, name: str, content: bytes, by: str, now: datetime) -> Program:
    """Store the program that the cluster has under `jar_id`. Equal content is stored only once."""
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


def copy_missing_programs(now: datetime) -> int:
    """Copy programs that were uploaded to a cluster without Waymark, if the cluster provides them; return how many."""
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
    """Return the copy of the program that the cluster has, or had, under this ID."""
    if not isinstance(jar_id, str):
        return None
    found = PlacedProgram.objects.filter(cluster=cluster, jar_id=jar_id).select_related("program").first()
    return found.program if found else None


class Damaged(Exception):
    """Raised if the stored copy differs from the upload."""


def content_of(program: Program) -> bytes:
    """Return the program's content. Raise Damaged."""
    content = b"".join(bytes(part) for part in program.parts.values_list("content", flat=True))
    if hashlib.sha256(content).hexdigest() != program.sha256:
        raise Damaged(f"Waymark's copy of {program} is damaged.")
    return content


def discard_unused(now: datetime) -> int:
    """Delete copies that neither the newest launch versions of a job nor an open restart needs; return how many."""
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
