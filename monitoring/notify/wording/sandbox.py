"""Templates that people write: Django's template language, restricted so that it can read only the message.

A template has at most LONGEST characters. It may use the tags `if` and `for` (no `for` inside a `for`), and the names
in ALLOWED_FILTERS and NAMES. Other templates are refused when they are saved, and the error lists what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.template import Context, Template, TemplateSyntaxError
from django.template.base import FilterExpression, Node, NodeList, Variable
from django.template.defaulttags import ForNode
from django.template.engine import Engine

LONGEST = 4000
NAMES = (
    *("event", "severity", "kind", "job", "cluster", "sentence", "cause", "at", "incident_url", "job_url", "runbook"),
    *("count", "unlisted", "incidents", "is_digest"),
)
ALLOWED_FILTERS = ("default", "date", "first", "join", "length", "lower", "pluralize", "truncatechars", "upper")
ALLOWED = (
    f"Allowed are {{{{ name }}}} with one of {', '.join(NAMES)}; {{% if %}} and {{% for each in incidents %}} "
    f"(each.job, each.sentence, …); and the filters {', '.join(ALLOWED_FILTERS)}"
)


class BadTemplate(ValueError):
    """The template is invalid. The text names the error, its line, and what is allowed."""


class _Engine(Engine):
    default_builtins = ["monitoring.notify.wording.sandbox_tags"]  # noqa: RUF012 (Django's own class attribute)


_ENGINE = _Engine(loaders=[], debug=False, autoescape=False, string_if_invalid="")


def compile_template(source: str) -> Template:
    """Return the compiled template. Raise BadTemplate."""
    if len(source) > LONGEST:
        raise BadTemplate(f"It has {len(source)} characters: at most {LONGEST} are allowed.")
    if "\0" in source:
        raise BadTemplate("It contains a NUL character, which is not allowed.")
    try:
        template = Template(source, engine=_ENGINE)
    except TemplateSyntaxError as problem:
        raise BadTemplate(f"{_first_sentence(str(problem))} {ALLOWED}.") from problem
    _refuse_unknown_names(template.nodelist, frozenset(NAMES))
    return template


def render(template: Template, values: Mapping[str, object]) -> str:
    return str(template.render(Context(dict(values), autoescape=False, use_l10n=False)))


def _refuse_unknown_names(nodes: NodeList, known: frozenset[str], in_loop: bool = False) -> None:
    for node in nodes:
        for variable in _variables(node):
            _check_name(variable, known)
        inner = known
        if isinstance(node, ForNode):
            if in_loop:
                raise BadTemplate(f"A {{% for %}} inside another {{% for %}} is not allowed. {ALLOWED}.")
            inner = known | set(node.loopvars) | {"forloop"}
        for name in node.child_nodelists:
            children = getattr(node, name, None)
            if isinstance(children, NodeList):
                _refuse_unknown_names(children, inner, in_loop or isinstance(node, ForNode))
        for _, children in getattr(node, "conditions_nodelists", ()):
            _refuse_unknown_names(children, inner, in_loop)


def _check_name(variable: Variable, known: frozenset[str]) -> None:
    name = variable.var if isinstance(variable.var, str) else str(variable)
    first, *rest = name.split(".")
    if first not in known:
        raise BadTemplate(f"{name!r} is not a name that a message has. {ALLOWED}.")
    if rest and first in NAMES:
        raise BadTemplate(
            f"{name!r}: {first} has no parts; write {{% for each in incidents %}} for each.job. {ALLOWED}."
        )


def _variables(node: Node) -> Iterator[Variable]:
    """Yield the variables that a node reads itself, without those of the nodes inside it."""
    for value in vars(node).values():
        yield from _in(value)
    for condition, _ in getattr(node, "conditions_nodelists", ()):
        yield from _in_condition(condition)


def _in(value: Any) -> Iterator[Variable]:
    if isinstance(value, FilterExpression):
        if isinstance(value.var, Variable) and value.var.lookups:
            yield value.var
        for _, arguments in value.filters:
            yield from (each for is_lookup, each in arguments if is_lookup and each.lookups)
    elif isinstance(value, Variable) and value.lookups:
        yield value


def _in_condition(condition: Any) -> Iterator[Variable]:
    if condition is None:
        return
    yield from _in(getattr(condition, "value", None))
    for side in ("first", "second"):
        yield from _in_condition(getattr(condition, side, None))


def _first_sentence(text: str) -> str:
    """Return Django's first sentence without its list of all tags, because BadTemplate lists the allowed ones."""
    line = re.split(r"\.? (?:Did you forget|Expected)", text.strip().splitlines()[0])[0]
    return line.rstrip(".") + "."
