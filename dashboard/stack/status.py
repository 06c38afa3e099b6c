"""Which parts there are and how each is doing, seen from outside."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.stack.environment import external_parts, var_directory
from dashboard.stack.parts import PartState
from dashboard.stack.record import KNOWN_PARTS, PartRecord, StackRecord


def parts_now(environ: Mapping[str, str]) -> list[PartRecord]:
    """Every part: the known ones first and in their order, also those that were never started (down, or external)."""
    found = {part.name: part for part in StackRecord(var_directory(environ) / "run").read()}
    outside = {part.name: part for part in external_parts(environ)}
    for name in KNOWN_PARTS:
        if name not in found:
            state = PartState.EXTERNAL if name in outside else PartState.DOWN
            found[name] = PartRecord(name, state.value, outside[name].address if name in outside else "")
    order = {name: position for position, name in enumerate(KNOWN_PARTS)}
    return sorted(found.values(), key=lambda part: (order.get(part.name, len(order)), part.name))
