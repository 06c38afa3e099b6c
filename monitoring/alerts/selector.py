"""Label selectors, which choose jobs by label: `team=payments,env!=dev`.

Terms are separated by commas, and all must match: `key=value`, `key!=value`, `key` (the label exists), `!key` (it does
not). A value may list alternatives, `env=prod|stage`, and contain the wildcard `*`, `job=orders-*`. A job without the
label matches `!=`. In addition to its own labels, a job has the labels `job`, `cluster` and `engine`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

OWN_KEYS = ("job", "cluster", "engine")
ALLOWED = "terms like team=payments, env!=dev, env=prod|stage, job=orders-*, team or !team, parted by commas"
_KEY = r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}"
_TERM = re.compile(rf"(?P<key>{_KEY})\s*(?P<sign>!?=)\s*(?P<value>[^,=!]{{1,200}})|(?P<absent>!)?\s*(?P<bare>{_KEY})")


class BadSelector(ValueError):
    """Raised for an invalid selector. The message names the invalid term and what is allowed."""

    def __init__(self, term: str) -> None:
        said = f"“{term}” is not a term" if term else "a term is empty"
        super().__init__(f"{said}: write {ALLOWED}.")


@dataclass(frozen=True)
class Term:
    """One condition of a selector. If `patterns` is empty, the term only checks whether the label exists."""

    key: str
    patterns: tuple[str, ...]
    wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if value is None or not self.patterns:
            return (value is not None) is self.wanted
        return (value in self.patterns or any(fnmatchcase(value, pattern) for pattern in self.globs)) is self.wanted

    @cached_property
    def globs(self) -> tuple[str, ...]:
        """Return the patterns that contain a wildcard or an escaped character."""
        return tuple(pattern for pattern in self.patterns if "*" in pattern or "[" in pattern)


@dataclass(frozen=True)
class Selector:
    terms: tuple[Term, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(term.holds(labels) for term in self.terms)


def parse(text: str) -> Selector:
    """Return the selector. An empty text selects all jobs. Raises BadSelector."""
    return Selector(tuple(_term(part.strip()) for part in text.split(",")) if text.strip() else ())


def parse_stored(text: str) -> Selector | None:
    """Return the selector, or None if it is invalid: it then selects no job rather than all jobs."""
    try:
        return parse(text)
    except BadSelector:
        return None


def selects(text: str, labels: Mapping[str, str]) -> bool:
    """Return whether a stored selector matches the labels. An invalid one does not."""
    selector = parse_stored(text)
    return selector is not None and selector.matches(labels)


def _term(text: str) -> Term:
    found = _TERM.fullmatch(text)
    if found is None:
        raise BadSelector(text[:100])
    if found["bare"]:
        return Term(found["bare"], (), not found["absent"])
    patterns = tuple(part.strip() for part in found["value"].split("|"))
    if not all(patterns):
        raise BadSelector(text[:100])
    # Only "*" is a wildcard. "?" and "[" are escaped, because fnmatch would treat them as special.
    escaped = tuple(re.sub(r"([?\[])", r"[\1]", pattern) for pattern in patterns)
    return Term(found["key"], escaped, found["sign"] == "=")
