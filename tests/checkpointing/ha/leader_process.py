"""A job manager for tests that kill it: it leads, stores checkpoints as fast as it can, and prints their IDs.

Arguments: hosts, root, storage directory. It stores the location of each checkpoint, but writes no files there.
"""

from __future__ import annotations

import os
import queue
import sys
from pathlib import Path

from checkpointing.ha.services import zookeeper_services
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import CheckpointKind

JOB_ID = "0123456789abcdef0123456789abcdef"
SESSION_TIMEOUT_S = 5.0  # the tests wait until it has expired


class Contender:
    def __init__(self) -> None:
        self.granted: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.session_id = ""

    def grant_leadership(self, session_id: str) -> None:
        self.session_id = session_id
        self.granted.put(session_id)

    def revoke_leadership(self) -> None:
        self.session_id = ""

    def on_error(self, error: Exception) -> None:
        raise error

    def on_fatal_error(self, error: Exception) -> None:
        os._exit(1)


def checkpoint_at(location: str) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        job_id=JOB_ID,
        job_name="wordcount",
        entry_class="wordcount:main",
        checkpoint_id=int(location.rpartition("-")[2]),
        properties=CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION),
        trigger_timestamp=0,
        completion_timestamp=0,
        operators=(),
        batches={},
        location=location,
        shared_location=None,
    )


def main(hosts: str, root: str, storage: str) -> None:
    services = zookeeper_services(hosts, root, "demo", Path(storage), checkpoint_at, SESSION_TIMEOUT_S)
    contender = Contender()
    services.leader_election.start(contender)
    session_id = contender.granted.get()
    services.leader_election.confirm_leadership(session_id, "http://127.0.0.1:1")
    recovery = services.recovery_factory.create(JOB_ID, 2)
    while True:
        checkpoint_id = recovery.counter.get_and_increment()
        recovery.store.add_checkpoint(checkpoint_at(f"/checkpoints/chk-{checkpoint_id}"))
        print(checkpoint_id, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
