from datetime import timedelta

import pytest

from monitoring.engine.operations import Done, Forgotten
from monitoring.models import CheckpointStatus, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.savepoints import SavepointReason
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.request import request_savepoint
from monitoring.savepoints.settle import ForgottenBut, settle


def sent(rows, now):
    """Return a savepoint whose request was sent, but whose answer was lost."""
    savepoint = request_savepoint(rows.run(rows.job()).job, SavepointOrigin.MANUAL, "ada", now)
    savepoint.posted_at = now
    savepoint.save()
    return savepoint


def test_a_request_that_left_no_trace_is_sent_again(rows, now):
    for answer in (Forgotten(), ForgottenBut(()), ForgottenBut((now - timedelta(minutes=1),))):
        savepoint = sent(rows, now)
        assert settle(savepoint, answer, now + timedelta(seconds=5)) is WorkReason.SAVEPOINTS_TO_BE_SENT_AGAIN
        savepoint.refresh_from_db()
        assert savepoint.posted_at is None


def test_a_request_is_not_sent_again_while_the_engine_lists_a_savepoint_that_may_match(rows, now):
    savepoint = sent(rows, now)

    settle(savepoint, ForgottenBut((now + timedelta(seconds=1),)), now + timedelta(seconds=5))

    savepoint.refresh_from_db()
    assert (savepoint.state, savepoint.posted_at) == (SavepointState.REQUESTED, now)


def test_while_the_history_has_it_under_way_it_is_not_sent_again(rows, now):
    savepoint = sent(rows, now)
    rows.checkpoint(
        savepoint.run, status=CheckpointStatus.IN_PROGRESS, is_savepoint=True, triggered_at=now, external_path=""
    )

    settle(savepoint, Forgotten(), now + timedelta(seconds=5))

    savepoint.refresh_from_db()
    assert (savepoint.state, savepoint.posted_at) == (SavepointState.IN_PROGRESS, now)


@pytest.mark.parametrize("path", ["/sp/a", "/sp/b", "/sp/c"])
def test_a_savepoint_is_linked_to_the_checkpoint_row_with_its_path(rows, now, path):
    savepoint = sent(rows, now)
    for each in ("b", "c", "a"):
        rows.checkpoint(
            savepoint.run, status=CheckpointStatus.COMPLETED, is_savepoint=True, external_path=f"file:/sp/{each}"
        )

    settle(savepoint, Done(path), now + timedelta(seconds=5))

    savepoint.refresh_from_db()
    assert savepoint.checkpoint.external_path == f"file:{path}"


def test_a_savepoint_does_not_get_the_path_of_another_one(rows, now):
    """Otherwise the disposal of one savepoint would delete the files of the other."""
    savepoint = sent(rows, now)
    other = {"origin": SavepointOrigin.MANUAL, "state": SavepointState.COMPLETED, "path": "file:/sp/1"}
    Savepoint.objects.create(job=savepoint.job, run=savepoint.run, requested_at=now - timedelta(hours=1), **other)

    settle(savepoint, Done("file:/sp/1"), now + timedelta(seconds=5))

    savepoint.refresh_from_db()
    assert (savepoint.state, savepoint.path) == (SavepointState.FAILED, "")
    assert savepoint.failure_value == SavepointReason.PATH_OF_ANOTHER(path="file:/sp/1")
    assert savepoint.failure == "The engine returned file:/sp/1, which belongs to another savepoint."
