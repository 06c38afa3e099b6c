"""Submit a new job to a cluster, and check the snapshot from which it will start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.acts.intents import Intent
from dashboard.acts.launches import NotStarted, upload
from dashboard.forms.submit import SubmitForm
from dashboard.language import rendered
from monitoring.engine.answers import FoundCheckpoint, SavepointValidation
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, NotFound
from monitoring.engine_calls import Call, call_all
from monitoring.models import Cluster, Job, RestartAttempt
from monitoring.recovery.manual import BadLaunch, RestartRefused, submit

_LIMIT_S = 30.0


def find_checkpoints_at(cluster: Cluster, locations: Mapping[str, str]) -> Sequence[FoundCheckpoint]:
    """Return the checkpoints that the cluster finds at locations, which are given by query name.

    Raises:
        NotStarted: the cluster did not respond, or it cannot import checkpoints.
    """

    async def act(client: FlinkClient) -> Sequence[FoundCheckpoint]:
        return await client.find_checkpoints(locations)

    (answer,) = call_all([Call(cluster, act, _LIMIT_S)])
    if isinstance(answer, NotFound):
        raise NotStarted("checkpoints", _("This cluster cannot import checkpoint locations."))
    if isinstance(answer, EngineError):
        raise NotStarted("checkpoints", rendered(answer.reason))
    return answer


def validate_savepoint_at(cluster: Cluster, path: str, entry_class: str) -> SavepointValidation | None:
    """Return the cluster's validation of the savepoint at `path`, or None if the cluster cannot validate savepoints.

    Raises:
        NotStarted: the cluster did not respond.
    """

    async def act(client: FlinkClient) -> SavepointValidation | None:
        return await client.validate_savepoint(path, entry_class)

    (answer,) = call_all([Call(cluster, act, _LIMIT_S)])
    if isinstance(answer, EngineError):
        raise NotStarted("savepoint", rendered(answer.reason))
    return answer


def check_savepoint(found: SavepointValidation | None) -> None:
    """Raise NotStarted with the reason if a job cannot start from the savepoint."""
    if found is not None and found.fault:
        raise NotStarted("savepoint", rendered(found.fault))


def fingerprint(found: Sequence[FoundCheckpoint]) -> str:
    """Return the id and last batch of each query. If they change, the person must confirm the checkpoints again."""
    return " ".join(f"{each.query_id}:{each.batch}" for each in found)


def check_usable(found: Sequence[FoundCheckpoint]) -> None:
    """Raise NotStarted with the reason of each location that cannot be imported."""
    if refused := [rendered(each.reason) for each in found if not each.valid]:
        raise NotStarted("checkpoints", " ".join(refused))


def submit_job(
    cluster: Cluster, form: SubmitForm, by: str, intent: Intent, found: Sequence[FoundCheckpoint] = ()
) -> RestartAttempt:
    """Upload the program if the form has one, and start the job. `found`: what is at its checkpoint locations.

    Raises:
        NotStarted: the cluster refused the program, or a value is not allowed.
        AttemptOpen: another start of the job is in progress.
    """
    typed = form.cleaned_data
    try:
        if sent := typed["upload"]:
            job = Job(cluster=cluster, name=typed["name"].strip())
            form.spec["jar_id"] = upload(job, sent.name, sent.read(), by, intent)
        query_ids = [each.query_id for each in found]
        return submit(cluster, typed["name"], form.spec, form.origin, by, timezone.now(), query_ids)
    except (BadLaunch, RestartRefused) as refused:
        raise NotStarted(refused.field, rendered(refused.reason)) from refused
