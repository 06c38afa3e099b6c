"""Plan an import: read and check the whole text, and find all changes and problems before anything is written."""

from __future__ import annotations

from dashboard.access.roles import Role
from dashboard.as_code.base import Plan, Section
from dashboard.as_code.channels import Channels
from dashboard.as_code.clusters import Clusters
from dashboard.as_code.defaults import Defaults
from dashboard.as_code.discoveries import Discoveries
from dashboard.as_code.grants import Grants
from dashboard.as_code.jobs import Jobs, plan_defaults_of_others
from dashboard.as_code.lines import Problem, Unreadable, read_entries
from dashboard.as_code.objectives import Objectives
from dashboard.as_code.rules import Rules
from dashboard.as_code.runbooks import Runbooks

# In this order, because a section may name things of those before it.
SECTIONS: tuple[Section, ...] = (
    *(Clusters(), Discoveries(), Defaults(), Jobs(), Channels(), Rules(), Runbooks(), Objectives(), Grants()),
)
NAMES = tuple(section.name for section in SECTIONS)


def plan(text: str, role: Role, *, only: frozenset[str] = frozenset(NAMES), lenient: bool = False) -> Plan:
    """Return the plan of a text for a user with this role. Sections that are not in the text do not change.

    Args:
        text: the YAML.
        role: the role of the user on everything.
        only: the sections that the text may have.
        lenient: ignore sections that the role may not change, instead of refusing the text.
    """
    made = Plan(role)
    try:
        found = read_entries(text, tuple(name for name in NAMES if name in only))
    except Unreadable as unreadable:
        made.problems.append(unreadable.problem)
        return made
    for section in SECTIONS:
        entries = found.get(section.name)
        if entries is None:
            continue
        if role >= section.least:
            section.plan(made, entries)
        elif not lenient:
            line = entries[0].line if entries else None
            who = "an administrator" if section.least is Role.ADMIN else "an operator"
            made.problems.append(Problem(line, f"{section.name}: only {who} can change these."))
    if not made.problems and {"clusters", "defaults"} & found.keys():
        plan_defaults_of_others(made)
    return made
