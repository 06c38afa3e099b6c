"""The times at which the demo's register is slow or broken, fixed so that every demo shows the same events.

They are minutes since the start of the service and repeat every ten minutes:

    0:45 – 1:25   slow      each look-up takes 9 s: batches outlast the checkpoint timeout (6 s), checkpoints expire
    1:45 – 2:00   broken    each look-up answers 500: the job fails; its restart strategy allows one restart
    2:45 – 3:25   slow
    3:45 – 4:00   broken    the job fails again and ends FAILED; Waymark brings it back
    5:00 – 5:40   slow
    7:00 – 7:40   slow
    9:00 – 9:40   slow
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CYCLE_S = 600.0
SLOW_ANSWER_S = 9.0


class Condition(Enum):
    FINE = "fine"
    SLOW = "slow"
    BROKEN = "broken"


@dataclass(frozen=True)
class Spell:
    """A time from `begin_s` to `end_s` (excluded), in seconds within a cycle."""

    begin_s: float
    end_s: float
    condition: Condition


SPELLS = (
    Spell(45, 85, Condition.SLOW),
    Spell(105, 120, Condition.BROKEN),
    Spell(165, 205, Condition.SLOW),
    Spell(225, 240, Condition.BROKEN),
    Spell(300, 340, Condition.SLOW),
    Spell(420, 460, Condition.SLOW),
    Spell(540, 580, Condition.SLOW),
)


def condition_at(elapsed_s: float) -> Condition:
    """Return the condition of the service `elapsed_s` after its start."""
    within = elapsed_s % CYCLE_S
    return next((spell.condition for spell in SPELLS if spell.begin_s <= within < spell.end_s), Condition.FINE)
