"""Servers that run elsewhere: nothing is started before they answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from dashboard.stack.doctor import Level, check_servers
from dashboard.stack.environment import external_parts

# Without these nothing can start; mail and another job manager may come later.
_NEEDED = frozenset({"postgres", "redis", "zookeeper"})
_PATIENCE_S = 30.0


class ExternalSilent(RuntimeError):
    """A server that a variable names does not answer; the text says which, why, and what to do."""


def await_external(environ: Mapping[str, str], say: Callable[[str], None], *, limit_s: float = _PATIENCE_S) -> None:
    """Return once each answers: at a machine's start they may come up later than we do. Raises ExternalSilent."""
    names = _NEEDED & {part.name for part in external_parts(environ)}
    deadline = time.monotonic() + limit_s
    told = False
    while silent := [each for each in check_servers(environ) if each.subject in names and each.level is Level.PROBLEM]:
        if time.monotonic() >= deadline:
            raise ExternalSilent("\n".join(f"{each.subject}: {each.text}\n{each.remedy}" for each in silent))
        if not told:
            say(f"waiting for {', '.join(each.subject for each in silent)} to answer, {limit_s:g} s at most")
            told = True
        time.sleep(1)
