from datetime import timedelta

from monitoring.engine.operations import Forgotten
from monitoring.models import SavepointOrigin, SavepointState
from monitoring.savepoints.request import request_savepoint
from monitoring.savepoints.settle import ForgottenBut, settle


def sent(rows, now):
    """A savepoint whose request left; its answer was lost."""
    savepoint = request_savepoint(rows.run(rows.job()).job, SavepointOrigin.MANUAL, "ada", now)
    savepoint.posted_at = now
    savepoint.save()
    return savepoint


def test_a_request_that_left_no_trace_is_sent_again(rows, now):
    for answer in (Forgotten(), ForgottenBut(()), ForgottenBut((now - timedelta(minutes=1),))):
        savepoint = sent(rows, now)
        assert settle(savepoint, answer, now + timedelta(seconds=5)) == "to be sent again"
        savepoint.refresh_from_db()
        assert savepoint.posted_at is None


def test_it_is_not_sent_again_while_the_engine_lists_a_savepoint_that_may_be_its(rows, now):
    savepoint = sent(rows, now)

    settle(savepoint, ForgottenBut((now + timedelta(seconds=1),)), now + timedelta(seconds=5))

    savepoint.refresh_from_db()
    assert (savepoint.state, savepoint.posted_at) == (SavepointState.REQUESTED, now)
