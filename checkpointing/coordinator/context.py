"""The objects that the parts of one coordinator share."""

from __future__ import annotations

from dataclasses import dataclass

from checkpointing.clock import Clock
from checkpointing.coordinator.effects import Do, Effect, Step
from checkpointing.coordinator.pending import JobIdentity
from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.model.configuration import CheckpointConfiguration


class Outbox:
    """Collects the effects of the current event. `num_steps` is the number of steps that have not ended."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self.num_steps = 0

    def put(self, effect: Effect) -> None:
        self._effects.append(effect)

    def do(self, step: Step) -> None:
        self.num_steps += 1
        self.put(Do(step))

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


@dataclass(frozen=True)
class CoordinatorContext:
    """The context of one coordinator.

    `session_id` is that of the leader's term and is in each message to the driver.
    """

    job: JobIdentity
    session_id: str
    config: CheckpointConfiguration
    clock: Clock
    stats: CheckpointStatsTracker
    outbox: Outbox
