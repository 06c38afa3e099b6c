"""Read YAML with line numbers. Tags, anchors and merges are refused, so that a small file cannot expand in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

LONGEST = 2_000_000


@dataclass(frozen=True)
class Problem:
    """An error in the text. `line` counts from 1, or is None for an error of the whole file."""

    line: int | None
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class Unreadable(Exception):
    """The text is not valid YAML or has another structure. Only the first problem is reported."""

    def __init__(self, line: int | None, text: str) -> None:
        self.problem = Problem(line, text)
        super().__init__(str(self.problem))


@dataclass(frozen=True)
class Entry:
    """A mapping with its values by key, and the line of each key."""

    line: int
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def line_of(self, key: str) -> int:
        return self.lines.get(key, self.line)


def read_entries(text: str, sections: tuple[str, ...]) -> dict[str, list[Entry]]:
    """Return the entries of each section of the text. Raises Unreadable."""
    root = _compose(text)
    if root is None:
        return {}
    found: dict[str, list[Entry]] = {}
    for key, value in _pairs(root, f"a mapping with {' and '.join(sections)}"):
        if key.value not in sections:
            raise Unreadable(_line(key), f"{key.value} is not allowed here. Allowed are {', '.join(sections)}.")
        found[key.value] = [_entry(each) for each in _items(value, key.value)]
    return found


def _compose(text: str) -> yaml.Node | None:
    if len(text) > LONGEST:
        raise Unreadable(None, f"The file has {len(text)} characters. At most {LONGEST} are allowed.")
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken):
                what = "A tag" if isinstance(token, yaml.TagToken) else "An anchor"
                raise Unreadable(token.start_mark.line + 1, f"{what} is not allowed here. Write the value itself.")
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        sentence = error.problem or error.context or "this cannot be read"
        raise Unreadable(mark.line + 1 if mark else None, f"This is not valid YAML: {sentence}.") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(None, f"This is not valid YAML: {str(error)[:200] or 'it is nested too deeply'}.") from None
    return root


def _pairs(node: yaml.Node, expected: str) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise Unreadable(_line(node), f"Found {_named(node)}, expected {expected}.")
    seen: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise Unreadable(_line(key), f"Found {_named(key)}, expected a name.")
        if key.value in seen:
            raise Unreadable(_line(key), f"{key.value} occurs twice, first in line {seen[key.value]}.")
        seen[key.value] = _line(key)
        yield key, value


def _items(node: yaml.Node, section: str) -> list[yaml.Node]:
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise Unreadable(_line(node), f"{section} is {_named(node)}, expected a list of entries (- name: …).")
    return list(node.value)


def _entry(node: yaml.Node) -> Entry:
    entry = Entry(_line(node))
    for key, value in _pairs(node, "an entry (name: …)"):
        entry.values[key.value], entry.lines[key.value] = _value(value), _line(key)
    return entry


def _value(node: yaml.Node) -> Any:
    """Return a text, True, False, None, a list of texts, or a mapping of texts. Numbers are returned as text."""
    match node:
        case yaml.ScalarNode() if node.tag.endswith(":null"):
            return None
        case yaml.ScalarNode() if node.tag.endswith(":bool"):
            return node.value.lower() in ("true", "yes", "on")
        case yaml.ScalarNode():
            return node.value
        case yaml.SequenceNode():
            return [_text(each) for each in node.value]
        case _:
            return {key.value: _text(value) for key, value in _pairs(node, "a mapping")}


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise Unreadable(_line(node), f"Found {_named(node)}, expected a single value.")
    return str(node.value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _named(node: yaml.Node) -> str:
    match node:
        case yaml.MappingNode():
            return "a mapping"
        case yaml.SequenceNode():
            return "a list"
        case _:
            return f"“{str(node.value)[:60]}”" if node.value else "nothing"
