from __future__ import annotations

import pytest

from checkpointing.ha.completed_checkpoints import subsumed
from checkpointing.model.messages import CheckpointKind

KINDS = {"cp": CheckpointKind.CHECKPOINT, "sp": CheckpointKind.SAVEPOINT, "sync": CheckpointKind.SYNC_SAVEPOINT}


@pytest.mark.parametrize(
    ("num_retained", "stored", "kept"),
    [
        pytest.param(
            1, "cp1 cp2 sp3 sp4 sp5", "cp2 sp5", id="test_conformance_E19_at_least_one_checkpoint_is_retained"
        ),
        pytest.param(1, "cp1 sp2 cp3", "cp3", id="test_conformance_E20_an_older_savepoint_is_subsumed"),
        pytest.param(1, "cp1 sp2 sync3", "sync3", id="a_synchronous_savepoint_replaces_all"),
        pytest.param(3, "cp1 cp2 cp3", "cp1 cp2 cp3", id="test_conformance_E22_nothing_is_subsumed_if_not_needed"),
        pytest.param(2, "cp1 cp2 cp3 cp4", "cp3 cp4", id="the_oldest_go_first"),
        pytest.param(1, "sp1", "sp1", id="the_newest_stays"),
        pytest.param(1, "sp1 sp2", "sp2", id="without_a_checkpoint_only_the_newest_savepoint_stays"),
        pytest.param(2, "cp1 sp2 sp3", "cp1 sp3", id="a_savepoint_goes_before_the_only_checkpoint"),
    ],
)
def test_conformance_e19_e20_e22_subsuming_follows_flinks_rules(files, num_retained, stored, kept):
    checkpoints = []
    for name in stored.split():
        checkpoints.append(files.completed(int(name[-1]), KINDS[name[:-1]]))  # noqa: PERF401

    dropped = subsumed(checkpoints, num_retained)

    assert [c.checkpoint_id for c in checkpoints if c not in dropped] == [int(name[-1]) for name in kept.split()]
    assert [c.checkpoint_id for c in dropped] == sorted(c.checkpoint_id for c in dropped)


def test_an_empty_list_has_nothing_to_drop():
    assert subsumed([], 1) == []
