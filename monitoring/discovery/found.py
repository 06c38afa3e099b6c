"""What a source has read about one of its resources. It is the same value for all sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from monitoring.reasons.reason import Reason

# What a person may enter as a label of a cluster, too.
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9._/@:-]{0,100}")
_LABELS_LONGEST = 1000


class Unreadable(ValueError):
    """The resource is not what its server promises. `name` is what it has as its name, for a message."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


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


def usable_labels(value: object) -> dict[str, str]:
    """Return the labels that a cluster may have, as many as fit into its form."""
    return dict(_first_labels(value)) if isinstance(value, dict) else {}


def _first_labels(value: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    length = 0
    for key, text in sorted(value.items()):
        if isinstance(text, str) and _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(text):
            length += len(key) + len(text) + 3
            if length <= _LABELS_LONGEST:
                yield key, text
