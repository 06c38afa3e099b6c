"""The rule kinds: those that the modules of this package list in their `KINDS`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from monitoring.alerts.kinds.base import Kind

GROUPS = ("Checkpoints", "State", "Savepoints", "Job", "Watching")


class UnknownKind(ValueError):
    """Raised for a rule whose kind this version of Waymark does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"kind is {name!r}: allowed are {', '.join(sorted(kinds()))}.")


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds by name, in the order of the pages."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    found: list[Kind] = [kind for module in modules for kind in getattr(module, "KINDS", ())]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: (GROUPS.index(kind.group), kind.title))}


def kind_of(name: str) -> Kind:
    """Return the kind with this name. Raises UnknownKind."""
    try:
        return kinds()[name]
    except KeyError:
        raise UnknownKind(name) from None
