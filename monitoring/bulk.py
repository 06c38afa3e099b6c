"""Write many rows with one statement. The rows are sent as one JSON text, which PostgreSQL parses.

This costs a worker a tenth of the time of single parameters. Columns are the fields' attnames; a missing value is null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import orjson
from django.db import connection
from django.db.models import Model

Row = Mapping[str, Any]
M = TypeVar("M", bound=Model)


def update(model: type[Model], rows: Sequence[Row], columns: Collection[str], *, kept: Collection[str] = ()) -> None:
    """Update rows by their primary key `id`. Columns of `kept` are overwritten only with values that are not null."""
    if not rows:
        return
    _execute(_update(model, tuple(columns), frozenset(kept)), rows)


def upsert(
    model: type[Model],
    rows: Sequence[Row],
    key: Sequence[str],
    columns: Collection[str],
    *,
    kept: Collection[str] = (),
    once: Collection[str] = (),
    returns: bool = True,
) -> dict[tuple[Any, ...], int]:
    """Insert rows, or on a conflict of `key` overwrite `columns`; those of `kept` only with values that are not null.

    Columns of `once` are inserted and never overwritten.

    Return the primary keys by the stored `key`, whose columns are integers, texts or times. If `returns` is False,
    return nothing, which is faster.
    """
    if not rows:
        return {}
    statement = _upsert(model, tuple(key), tuple(columns), frozenset(kept), tuple(once))
    if returns:
        keys = ", ".join(f'"{column}"' for column in key)
        return {tuple(row[1:]): row[0] for row in _execute(f"{statement} RETURNING id, {keys}", rows, returns=True)}
    _execute(statement, rows)
    return {}


def read(statement: str, rows: Sequence[Row], **given: Any) -> list[tuple[Any, ...]]:
    """Run a query that reads `rows` with `jsonb_to_recordset(%(rows)s::jsonb)`, and return its result."""
    with connection.cursor() as cursor:
        cursor.execute(statement, {"rows": orjson.dumps(rows).decode(), **given})
        return cursor.fetchall() if cursor.description else []


def columns_of(model: type[Model]) -> tuple[str, ...]:
    """Return all columns of the model, in the order for `loaded`."""
    return tuple(field.attname for field in model._meta.concrete_fields)


def loaded(model: type[M], columns: tuple[str, ...], row: Sequence[Any]) -> M:
    """Return the instance of a row that begins with these columns, in the model's order.

    `Manager.raw` does the same but computes the converters at every call, which takes longer than a small query.
    """
    values = list(row[: len(columns)])
    for place, column, convert in _converters(model, columns):
        values[place] = convert(values[place], column, connection)
    return model.from_db(connection.alias, columns, values)


@lru_cache(maxsize=50)
def _converters(model: type[Model], columns: tuple[str, ...]) -> list[tuple[int, Any, Callable[..., Any]]]:
    fields = {field.attname: field for field in model._meta.concrete_fields}
    read = [fields[column].get_col(model._meta.db_table) for column in columns]
    return [
        (place, column, convert)
        for place, column in enumerate(read)
        for convert in (*connection.ops.get_db_converters(column), *column.get_db_converters(connection))
    ]


@lru_cache(maxsize=200)
def _update(model: type[Model], columns: tuple[str, ...], kept: frozenset[str]) -> str:
    table = connection.ops.quote_name(model._meta.db_table)
    changes, given = _changes(table, "given", columns, kept), _recordset(model, ["id", *columns])
    return f"UPDATE {table} SET {changes} FROM {given} WHERE {table}.id = given.id"  # noqa: S608


@lru_cache(maxsize=200)
def _upsert(
    model: type[Model], key: tuple[str, ...], columns: tuple[str, ...], kept: frozenset[str], once: tuple[str, ...]
) -> str:
    table = connection.ops.quote_name(model._meta.db_table)
    given = [*key, *columns, *once]
    names = ", ".join(f'"{column}"' for column in given)
    keys = ", ".join(f'"{column}"' for column in key)
    return (
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {_recordset(model, given)}"  # noqa: S608
        f" ON CONFLICT ({keys}) DO UPDATE SET {_changes(table, 'excluded', columns, kept)}"
    )


def insert(instances: Sequence[Model]) -> None:
    """Insert all instances, which must be of one model, and set their primary keys.

    Fields are stored as they are, without automatic values.
    """
    if not instances:
        return
    model = type(instances[0])
    fields = model._meta.concrete_fields
    names = ", ".join(f'"{field.column}"' for field in fields)
    for instance, number in zip(instances, _next_ids(model, len(instances)), strict=True):
        instance.pk = number
    rows = [{field.attname: getattr(instance, field.attname) for field in fields} for instance in instances]
    table = connection.ops.quote_name(model._meta.db_table)
    columns = [field.attname for field in fields]
    _execute(f"INSERT INTO {table} ({names}) SELECT * FROM {_recordset(model, columns)}", rows)  # noqa: S608
    for instance in instances:
        instance._state.adding, instance._state.db = False, connection.alias  # noqa: SLF001 (as Django's own)


def _next_ids(model: type[Model], count: int) -> list[int]:
    sequence = "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)"
    with connection.cursor() as cursor:
        cursor.execute(sequence, [model._meta.db_table, count])
        return [number for (number,) in cursor.fetchall()]


def _changes(table: str, source: str, columns: Collection[str], kept: Collection[str]) -> str:
    return ", ".join(
        f'"{column}" = COALESCE({source}."{column}", {table}."{column}")'
        if column in kept
        else f'"{column}" = {source}."{column}"'
        for column in columns
    )


def _recordset(model: type[Model], columns: Collection[str]) -> str:
    fields = {field.attname: field for field in model._meta.concrete_fields}
    types = ", ".join(f'"{column}" {fields[column].db_type(connection)}' for column in columns)
    return f"jsonb_to_recordset(%s::jsonb) AS given({types})"


def _execute(statement: str, rows: Sequence[Row], *, returns: bool = False) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [orjson.dumps(rows).decode()])
        return cursor.fetchall() if returns else []
