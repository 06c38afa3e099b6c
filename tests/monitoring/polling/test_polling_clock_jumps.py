"""After a clock jump, times that were written in the future do not delay polls once the clock is right again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitoring.models import Checkpoint, CheckpointGap, Cluster, Run


@pytest.mark.parametrize("jump", [timedelta(days=1), timedelta(minutes=20), -timedelta(days=1)])
def test_polls_continue_over_a_jump_and_back(engine, cluster, poll, jump):
    job = engine.job()
    job.add(1, 2)
    poll(5)
    for there_and_back in (jump, -jump):
        poll.clock += there_and_back
        for _ in range(4):
            job.add(job.checkpoints[-1].id + 1)
            poll(5)
    assert sorted(Checkpoint.objects.values_list("checkpoint_id", flat=True)) == [one.id for one in job.checkpoints]
    assert not CheckpointGap.objects.exists()
    assert Run.objects.get().state == "RUNNING"
    due = Cluster.objects.get().next_poll_at
    assert due is not None
    assert due <= poll.clock + timedelta(minutes=1)


def test_a_claim_that_a_jump_moved_into_the_future_is_not_a_claim(engine, cluster, poll):
    engine.job().add(1)
    Cluster.objects.update(poll_claimed_until=poll.clock + timedelta(days=1), poll_claimed_by="f" * 32)
    poll(5)
    assert Checkpoint.objects.count() == 1
