"""Run all signs, which the modules of this package list in `SIGNS`, and order their findings. No I/O."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from monitoring.diagnosis.diagnosis_facts import DiagnosisFacts
from monitoring.diagnosis.finding import Finding
from monitoring.diagnosis.signs.base import Sign
from monitoring.diagnosis.signs.phases import SlowCommit, SlowStorage
from monitoring.diagnosis.signs.skew import Skew

# These causes slow down all subtasks, so they are dropped if only one subtask is slow.
_OF_ALL_SUBTASKS = frozenset({SlowCommit.name, SlowStorage.name})
CAUSES = 3  # more than three causes do not help the reader


@cache
def signs() -> tuple[Sign, ...]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return tuple(sign for module in modules for sign in getattr(module, "SIGNS", ()))


def causes(facts: DiagnosisFacts) -> list[Finding]:
    """Return why the checkpoint of the facts is slow, failed, pending or missing, the most certain cause first."""
    found = [finding for sign in signs() if sign.of_checkpoint and (finding := sign.find(facts))]
    if any(each.name == Skew.name for each in found):
        found = [each for each in found if each.name not in _OF_ALL_SUBTASKS]
    return sorted(found, key=lambda each: (each.confidence, -each.weight))[:CAUSES]


def advices(facts: DiagnosisFacts) -> list[Finding]:
    """Return advices about risky settings of the job, the most important first."""
    found = [finding for sign in signs() if not sign.of_checkpoint and (finding := sign.find(facts))]
    return sorted(found, key=lambda each: -each.weight)
