"""Export the configuration as YAML, with sorted entries and keys, so that exports differ only by changes."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from dashboard.access.roles import Role
from dashboard.as_code.base import Values
from dashboard.as_code.plan import SECTIONS

_HEAD = """\
# Waymark's configuration, without secrets. An import keeps the stored secrets.
# To see what an import would change: manage.py config plan FILE
"""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines, such as certificates, as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def export(role: Role) -> str:
    """Return the YAML of everything that the role may see."""
    shown = [section for section in SECTIONS if section.least < Role.ADMIN or role is Role.ADMIN]
    lines = [line for section in shown for line in _section(section.name, section.entries())]
    return _HEAD + "\n".join(lines) + "\n"


def _section(name: str, entries: list[Values]) -> Iterator[str]:
    if not entries:
        yield f"{name}: []"
        return
    yield f"{name}:"
    for entry in entries:
        text = yaml.dump(entry, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
        for number, line in enumerate(text.splitlines()):
            yield f"{'  - ' if number == 0 else '    '}{line}"
