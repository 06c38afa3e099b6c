"""How many rows several questions have, in one statement: each page asks the same handful, and the way costs most."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet


def counts(*asked: QuerySet[Any]) -> list[int]:
    """As `count()` of each, in their order."""
    statements, parameters = zip(*map(_statement, asked), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(statements)}", [each for some in parameters for each in some])
        return list(cursor.fetchone() or ())


def _statement(asked: QuerySet[Any]) -> tuple[str, tuple[Any, ...]]:
    try:
        inner, parameters = asked.order_by().values("pk").query.sql_with_params()
    except EmptyResultSet:  # a reader who sees no cluster: nothing is asked
        return "0", ()
    return f"(SELECT count(*) FROM ({inner}) asked)", parameters  # noqa: S608 - Django's own statement
