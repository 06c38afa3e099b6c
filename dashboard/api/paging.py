"""Keyset pagination: the cursor is the position of the last row, so that every page costs the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from ninja import Schema
from pydantic import Field

from dashboard.api.errors import invalid

M = TypeVar("M", bound=Model)
T = TypeVar("T")

MOST = 200
_ALLOWED = "Send the `next` of the previous page."


class PageParams(Schema):
    """The query parameters of every list."""

    limit: int = Field(50, ge=1, le=MOST, description="Maximum number of items.")
    cursor: str = Field("", max_length=500, description="The `next` of the previous page. Empty: the first page.")


class Listed(Schema, Generic[T]):
    items: list[T]
    next: str | None = Field(None, description="The `cursor` of the next page. null: this is the last page.")


def page_of(rows: QuerySet[M], params: PageParams, order: Sequence[str]) -> dict[str, Any]:
    """Return a page of a queryset.

    `order` has field names, with a leading `-` for descending order. The last field is unique, and none is null.
    """
    places = _read(params.cursor, len(order)) if params.cursor else None
    try:
        found = rows.filter(_beyond(order, places)) if places else rows
        listed = list(found.order_by(*order)[: params.limit + 1])
    except (ValueError, TypeError, OverflowError, ValidationError) as error:
        raise invalid("cursor", params.cursor, _ALLOWED) from error
    shown = listed[: params.limit]
    last = [getattr(shown[-1], name.lstrip("-")) for name in order] if len(listed) > params.limit else None
    return {"items": shown, "next": _write(last) if last else None}


def page_of_list(rows: Sequence[T], params: PageParams, key: Callable[[T], str]) -> dict[str, Any]:
    """Return a page of a list, in the order of the list. The cursor is the key of the last row."""
    start = 0
    if params.cursor:
        (last,) = _read(params.cursor, 1)
        start = next((place + 1 for place, row in enumerate(rows) if key(row) == last), len(rows))
    shown = rows[start : start + params.limit]
    return {"items": list(shown), "next": _write([key(shown[-1])]) if start + params.limit < len(rows) else None}


def _beyond(order: Sequence[str], places: Sequence[Any]) -> Q:
    """Return the condition for rows after a position.

    A row is after the position if its first field is later, or if this field is equal and the second is later, etc.
    """
    condition, same = Q(), Q()
    for name, place in zip(order, places, strict=True):
        after = "lt" if name.startswith("-") else "gt"
        field = name.lstrip("-")
        condition |= same & Q(**{f"{field}__{after}": place})
        same &= Q(**{field: place})
    return condition


def _write(places: Sequence[Any]) -> str:
    text = [place.isoformat() if isinstance(place, datetime) else place for place in places]
    return base64.urlsafe_b64encode(json.dumps(text).encode()).decode().rstrip("=")


def _read(cursor: str, length: int) -> list[Any]:
    try:
        places = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        places = None
    if not isinstance(places, list) or len(places) != length or not all(isinstance(p, str | int) for p in places):
        raise invalid("cursor", cursor, _ALLOWED)
    return places
