"""Lets the cluster make a savepoint from Spark's checkpoint locations, which it only reads."""

from __future__ import annotations

import re
from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Malformed, NotFound, NotReady, Refused, Unreachable
from monitoring.engine.operations import Done, Failed, Forgotten, InProgress
from monitoring.models import AttemptState, RestartAttempt
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import TIME_LIMIT
from monitoring.recovery.launching import entry_class
from monitoring.recovery.stages.base import Act, End, Next, Outcome, Wait, given_up, launch_of, wait_for, write

# The exception class at the start of the job manager's message.
_CLASS = re.compile(r"^[A-Z]\w*: ")


class ImportState:
    """Copies the checkpoint location. It is repeatable: the engine identifies the copy by the new job's ID."""

    step = _("Copy the checkpoint location")

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if stopped := given_up(attempt, now):
            return stopped
        if attempt.restore_path:
            return Next(AttemptState.VALIDATING, Why.IMPORTED(path=attempt.restore_path))
        locations, program = attempt.imports, entry_class(launch_of(attempt))

        async def act(client: FlinkClient) -> object:
            return await client.import_checkpoints(locations, program, attempt.engine_job_id)

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case Done(str(path)):
                # The start has its full time limit, however long the copy took.
                write(attempt, restore_path=path, restore_is_savepoint=True, deadline_at=now + TIME_LIMIT)
                return Next(AttemptState.VALIDATING, Why.IMPORTED(path=path))
            case InProgress():
                write(attempt, deadline_at=now + TIME_LIMIT)
                return Wait(Why.IMPORTING())
            case Forgotten():
                return Wait(Why.IMPORT_LOST())
            case Failed(reason, trace=trace, refusal=refusal):
                return _not_copied(refusal or _CLASS.sub("", trace.partition("\n")[0]) or reason)
            case NotFound():
                return _not_copied(Why.NO_IMPORTS_HERE())
            case Unreachable() | NotReady() | Malformed() | Refused(is_request_invalid=False):
                return wait_for(answer)
            case EngineError():
                return _not_copied(answer.reason)
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer to an import")


def _not_copied(why: Reason | str) -> End:
    return End(AttemptState.FAILED, Why.IMPORT_FAILED(why=why), nothing_runs=True)
