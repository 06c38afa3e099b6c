"""Take savepoints of jobs that the Flink operator runs, with resources of the kind FlinkStateSnapshot."""

from __future__ import annotations

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.engine.errors import NotFound, RequestNotSent
from monitoring.engine.operations import Forgotten, Operation
from monitoring.kubernetes.api import KubernetesApi
from monitoring.kubernetes.credentials import connection_of
from monitoring.kubernetes.flink_operator import savepoint_status, trigger_savepoint
from monitoring.kubernetes.job_resources import JobResource, job_resources
from monitoring.models import FoundResource, Savepoint
from monitoring.savepoints.settle import Accepted


def operator_resource(savepoint: Savepoint) -> FoundResource | None:
    """Return the resource of the job if Waymark takes its savepoints through the operator."""
    found = job_resources(savepoint.job.cluster, savepoint.run.engine_job_id)
    return next((row for row in found if row.source.may_change_resources and row.source.enabled), None)


class OperatorAct:
    """The request to the operator for one savepoint, or the look at its progress. May be repeated."""

    def __init__(self, savepoint: Savepoint, resource: FoundResource) -> None:
        self._target = JobResource.of(resource)
        self._trigger_id = savepoint.trigger_id
        self._never_sent = savepoint.posted_at is None
        self._connection: Connection | RequestNotSent
        try:
            self._connection = connection_of(resource.source)
        except RequestNotSent as error:
            self._connection = error

    async def __call__(self, client: FlinkClient) -> Accepted | Operation[str]:
        if isinstance(self._connection, RequestNotSent):
            raise self._connection
        api = KubernetesApi(self._connection)
        try:
            if not self._never_sent:
                return await savepoint_status(api, self._target, self._trigger_id)
            await trigger_savepoint(api, self._target, self._trigger_id)
        except NotFound:
            if self._never_sent:
                raise
            return Forgotten()
        finally:
            await api.close()
        return Accepted()
