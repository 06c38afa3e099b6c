"""The table of signs, which the modules of this package list in their `SIGNS`; and what they find, in order. Pure."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from monitoring.diagnosis.finding import Finding
from monitoring.diagnosis.scene import Scene
from monitoring.diagnosis.signs.base import Sign
from monitoring.diagnosis.signs.phases import SlowCommit, SlowStorage
from monitoring.diagnosis.signs.skew import Skew

# What would slow all subtasks down; where one alone is slow, it is not that.
_OF_ALL_SUBTASKS = frozenset({SlowCommit.name, SlowStorage.name})
CAUSES = 3  # more than that help nobody


@cache
def signs() -> tuple[Sign, ...]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return tuple(sign for module in modules for sign in getattr(module, "SIGNS", ()))


def causes(scene: Scene) -> list[Finding]:
    """Why the scene's checkpoint is slow, failed or still pending, or why there is none; the surest first."""
    found = [finding for sign in signs() if sign.of_checkpoint and (finding := sign.find(scene))]
    if any(each.name == Skew.name for each in found):
        found = [each for each in found if each.name not in _OF_ALL_SUBTASKS]
    return sorted(found, key=lambda each: (each.confidence, -each.weight))[:CAUSES]


def advices(scene: Scene) -> list[Finding]:
    """What of the job's configuration asks for trouble; what matters most first."""
    found = [finding for sign in signs() if not sign.of_checkpoint and (finding := sign.find(scene))]
    return sorted(found, key=lambda each: -each.weight)
