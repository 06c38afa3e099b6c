"""Every route of the URL configuration, and a URL for each route."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from django.urls import URLPattern, URLResolver, get_resolver

SLUGS = {
    "document": "errors",
    "form": "csv",
    "kind": "failed_in_window",
    "mail_id": "none",
    "name": "durations",
    "what": "exceptions",
}


def all_routes() -> list[str]:
    return sorted(_routes(get_resolver().url_patterns, ""))


def _routes(patterns: list[URLPattern | URLResolver], before: str) -> Iterator[str]:
    for each in patterns:
        route = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _routes(each.url_patterns, route)
        else:
            yield route


def address_of(route: str, ids: Mapping[str, int]) -> str:
    """Return a URL of the route, with the id of a row of the type with which the route begins."""
    first = route.removeprefix("api/v1/").partition("/")[0]
    path = route.replace("<int:checkpoint>", str(ids["checkpoints"]))
    path = re.sub(r"<int:\w+>", lambda _: str(ids.get(first, 1)), path)
    if route == "find/":
        path += "?q=hidden"
    if first == "channels":
        path = path.replace("<slug:kind>", "mail")
    return "/" + re.sub(r"<slug:(\w+)>", lambda found: SLUGS[found[1]], path)
