"""`/jobs/:id/resource-requirements`: the parallelism of a running job, as in Flink's adaptive scheduler.

{"<vertex id>": {"parallelism": {"lowerBound": 1, "upperBound": 4}}, …}    for every vertex of the job
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.long_action import OperationRefused
from checkpointing.jobs.parallelism import InvalidRequirements, ParallelismBounds
from checkpointing.jobs.rescale import RequirementsNotStored
from checkpointing.rest.errors import RestError, bad_request
from checkpointing.rest.jobs import job_of
from checkpointing.rest.requests import json_body, whole_number


class ResourceRequirementsHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def get(self, request: Request) -> JSONResponse:
        requirements = job_of(self._dispatcher, request).rescale.requirements
        return JSONResponse({vertex_id: _bounds_json(bounds) for vertex_id, bounds in requirements.items()})

    async def put(self, request: Request) -> JSONResponse:
        """Answer once the requirements are stored; the job restarts after that.

        After 400 and 409 nothing was changed.
        """
        job = job_of(self._dispatcher, request)
        requirements = {vertex_id: _bounds(vertex_id, value) for vertex_id, value in (await json_body(request)).items()}
        try:
            await job.rescale.require(requirements)
        except InvalidRequirements as error:
            raise bad_request(str(error)) from error
        except OperationRefused as error:
            raise RestError(409, str(error)) from error
        except RequirementsNotStored as error:
            raise RestError(500, str(error)) from error
        return JSONResponse({})


def _bounds_json(bounds: ParallelismBounds) -> dict[str, Any]:
    return {"parallelism": {"lowerBound": bounds.lower, "upperBound": bounds.upper}}


def _bounds(vertex_id: str, value: Any) -> ParallelismBounds:
    parallelism = value.get("parallelism") if isinstance(value, dict) else None
    if not isinstance(parallelism, dict):
        raise bad_request(f"{vertex_id}: {value!r} is not allowed; an object with parallelism is expected")
    return ParallelismBounds(_bound(vertex_id, parallelism, "lowerBound"), _bound(vertex_id, parallelism, "upperBound"))


def _bound(vertex_id: str, parallelism: Mapping[str, Any], name: str) -> int:
    value = parallelism.get(name)
    number = whole_number(value)
    if number is None:
        raise bad_request(f"{vertex_id}: {name}: {value!r} is not allowed; a whole number is expected")
    return number
