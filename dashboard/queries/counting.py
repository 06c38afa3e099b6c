"""Count the rows of several querysets in one statement, because round trips to the database cost most of the time."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet


def counts(*querysets: QuerySet[Any]) -> list[int]:
    """Return the `count()` of each queryset, in their order."""
    statements, parameters = zip(*map(_statement, querysets), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(statements)}", [each for some in parameters for each in some])
        return list(cursor.fetchone() or ())


def _statement(queryset: QuerySet[Any]) -> tuple[str, tuple[Any, ...]]:
    try:
        inner, parameters = queryset.order_by().values("pk").query.sql_with_params()
    except EmptyResultSet:  # the reader may see no cluster, so Django builds no query
        return "0", ()
    return f"(SELECT count(*) FROM ({inner}) asked)", parameters  # noqa: S608 - Django's own statement
