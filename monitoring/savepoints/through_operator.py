"""Take savepoints of jobs that the Flink operator runs, with resources of the kind FlinkStateSnapshot."""

from __future__ import annotations

import logging

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.engine.errors import EngineError, NotFound, RequestNotSent
from monitoring.engine.operations import Forgotten, Operation
from monitoring.kubernetes.api import KubernetesApi
from monitoring.kubernetes.credentials import connection_of
from monitoring.kubernetes.flink_operator import forget_savepoint, savepoint_status, trigger_savepoint
from monitoring.kubernetes.job_resources import JobResource, job_resources, resource_of
from monitoring.models import FoundResource, Savepoint
from monitoring.savepoints.settle import Accepted

log = logging.getLogger(__name__)


def operator_resource(savepoint: Savepoint) -> FoundResource | None:
    """Return the resource of the job if Waymark takes its savepoints through the operator."""
    found = job_resources(savepoint.job.cluster, savepoint.run.engine_job_id)
    return next((row for row in found if row.source.restarts_jobs), None)


class SnapshotResource:
    """The FlinkStateSnapshot that Waymark has created for a savepoint, if the operator still runs the job."""

    def __init__(self, savepoint: Savepoint) -> None:
        row = resource_of(savepoint.job)
        self._target = JobResource.of(row) if row is not None and row.source.restarts_jobs else None
        self._trigger_id = savepoint.trigger_id
        self._connection = None if self._target is None or row is None else _connection_to(row)

    async def forget(self) -> None:
        """Delete it, if it exists and Kubernetes answers. It has no files that are not deleted already."""
        if self._target is None or not isinstance(self._connection, Connection):
            return
        try:
            async with KubernetesApi(self._connection) as api:
                await forget_savepoint(api, self._target, self._trigger_id)
        except EngineError as error:
            log.info("The resource of savepoint %s was not deleted: %s", self._trigger_id, error)


def _connection_to(row: FoundResource) -> Connection | RequestNotSent:
    try:
        return connection_of(row.source)
    except RequestNotSent as error:
        return error


class OperatorAct:
    """The request to the operator for one savepoint, or the look at its progress. May be repeated."""

    def __init__(self, savepoint: Savepoint, resource: FoundResource) -> None:
        self._target = JobResource.of(resource)
        self._trigger_id = savepoint.trigger_id
        self._never_sent = savepoint.posted_at is None
        self._connection = _connection_to(resource)

    async def __call__(self, client: FlinkClient) -> Accepted | Operation[str]:
        if isinstance(self._connection, RequestNotSent):
            raise self._connection
        async with KubernetesApi(self._connection) as api:
            if self._never_sent:
                await trigger_savepoint(api, self._target, self._trigger_id)
                return Accepted()
            try:
                return await savepoint_status(api, self._target, self._trigger_id)
            except NotFound:
                return Forgotten()
