"""Explains why a restored state does not fit the program: which operator it is, and what differs.

Spark detects this when it plans the first batch, and reports neither the operator nor a solution. By then only the
batch's offsets are written, in the attempt's own directory, so the snapshot is unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from checkpointing.model.messages import VertexKind
from checkpointing.spark.query_plan import QueryPlan

_SCHEMA = re.compile(
    r"\[STATE_STORE_(?P<part>KEY|VALUE)_SCHEMA_NOT_COMPATIBLE\].*?"
    r"Existing \w+_schema=(?P<stored>StructType\(.*?\)) and new \w+_schema=(?P<new>StructType\(.*?\))\.(?:\n|$)",
    re.DOTALL,
)
_OPERATORS = re.compile(
    r"Stateful operators in the metadata: \[(?P<stored>.*?)\]; Stateful operators in current batch: \[(?P<new>.*?)\]"
)
_OPERATOR = re.compile(r"\(OperatorId: (\d+) -> OperatorName: (\w+)\)")
_ADVICE = (
    "Restore it with the program that it was taken from. To start the query without this state, give it another name "
    "and an output that is empty: it reads its input from the beginning, and would write rows a second time into the "
    "output that it has now."
)


def state_mismatch_message(message: str, plan: QueryPlan, location: Path) -> str | None:
    """Return an explanation of Spark's `message` about the query at `location`, or None for another message."""
    schema = _SCHEMA.search(message)
    if schema is not None:
        stored, new = _fields(schema["stored"]), _fields(schema["new"])
        part = schema["part"].lower()
        operator = _operator_names(stored, 0 if part == "key" else 1, plan, location)
        return (
            f"The restored state of {operator} in query {plan.query!r} does not fit the program: "
            f"its {part} is ({_listed(stored)}), the program's is ({_listed(new)}). {_ADVICE}"
        )
    operators = _OPERATORS.search(message)
    if operators is not None:
        return (
            f"The restored state of query {plan.query!r} is that of {_named(operators['stored'])}; "
            f"the program has {_named(operators['new'])}. {_ADVICE}"
        )
    return None


def _named(operators: str) -> str:
    named = [f"{name} (operator {number})" for number, name in _OPERATOR.findall(operators)]
    return " and ".join(named) or "no stateful operator"


def _operator_names(stored: list[tuple[str, str]], part: int, plan: QueryPlan, location: Path) -> str:
    """Return the names of the operators whose state has the key (`part` 0) or value (`part` 1) fields `stored`."""
    stateful = {index: vertex for (kind, index), vertex in plan.by_owner.items() if kind is VertexKind.STATEFUL}
    names = [name for name, _ in stored]
    found = [index for index in stateful if names in _field_names(location / "state" / str(index), part)]
    return " or ".join(repr(stateful[index].name) for index in found or sorted(stateful)) or "an operator"


def _field_names(operator: Path, part: int) -> list[list[str]]:
    """Return the field names for each of the operator's stores.

    A schema file contains the schemas of key and value as JSON, between lengths.
    """
    found = []
    for path in operator.glob("0/**/_metadata/schema"):
        schemas = list(_schemas(path.read_bytes().decode(errors="replace")))
        if part < len(schemas):
            found.append(schemas[part])
    return found


def _schemas(text: str) -> Iterator[list[str]]:
    at = text.find('{"type":"struct"')
    while at >= 0:
        schema, at = json.JSONDecoder().raw_decode(text, at)
        yield [field["name"] for field in schema["fields"]]
        at = text.find('{"type":"struct"', at)


def _fields(struct: str) -> list[tuple[str, str]]:
    """Return the names and types in `StructType(StructField(name,Type,nullable),…)`.

    Types may contain brackets and commas.
    """
    fields = []
    for each in _parts(struct.removeprefix("StructType(").removesuffix(")")):
        name, *types = _parts(each.removeprefix("StructField(").removesuffix(")"))
        fields.append((name, ",".join(types[:-1]).replace("Type", "").lower()))
    return fields


def _parts(text: str) -> list[str]:
    """Return `text` split at the commas outside of brackets."""
    parts, depth = [""], 0
    for each in text:
        depth += (each == "(") - (each == ")")
        if each == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return [part for part in parts if part]


def _listed(fields: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in fields)
