"""What a source has read about one of its resources. It is the same value for all sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from monitoring.reasons.reason import Reason


class Key(NamedTuple):
    """The lasting name of a resource within its source."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Found:
    """A resource. `rest_url` is the address of Flink's REST API, "" if the resource has none.

    `uid` differs between a resource and a later one under its name. `version` differs after each change.
    `deployment`: the name of the deployment that the resource belongs to, or "". `state`: what its operator reports,
    under the operator's names. `problem`: what its operator reports as wrong.
    """

    key: Key
    uid: str = ""
    version: str = ""
    rest_url: str = ""
    deployment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    problem: Reason | None = None
