"""Test the settings of a source before they are stored: say what is found there, or what is missing.

The test sends requests. It takes seconds if nothing answers. It writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitoring.engine.errors import EngineError
from monitoring.engine.examination import unencrypted_secrets
from monitoring.models import DiscoverySource, SourceKind
from monitoring.reasons.reason import Reason


@dataclass(frozen=True)
class Finding:
    """What was found of a kind of resources (its key) in a namespace ("": all), at the least if there are `more`.

    `is_missing`: the server does not have this kind, which is no error.
    """

    kind: str
    namespace: str = ""
    count: int = 0
    more: bool = False
    problem: Reason | str = ""
    is_missing: bool = False


def examine(source: DiscoverySource) -> Sequence[Finding] | Reason | str:
    """Return what was found by kind, or why the server cannot be used. The source may not be stored."""
    try:
        findings = asyncio.run(_examinations()[source.kind](source))
    except EngineError as error:
        return error.reason
    problems = {str(finding.problem): finding.problem for finding in findings}
    return next(iter(problems.values())) if len(problems) == 1 and "" not in problems else findings


def remarks_on(source: DiscoverySource) -> list[Reason]:
    """Return a warning for each server that gets a secret without TLS."""
    return unencrypted_secrets(source.authentication, source.address_list)


def _examinations() -> Mapping[str, Callable[[DiscoverySource], Coroutine[Any, Any, Sequence[Finding]]]]:
    from monitoring.discovery.kubernetes import reading
    from monitoring.discovery.yarn import polling

    return {SourceKind.KUBERNETES: reading.examine, SourceKind.YARN: polling.examine}
