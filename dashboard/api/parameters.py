"""Refuse query parameters that an operation does not have, because a misspelled filter would have no effect.

The parameters of each operation come from the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from django.http import HttpRequest, HttpResponse

from dashboard.access.subjects import API
from dashboard.api.errors import FieldError, answer_of

Answer = Callable[[HttpRequest], HttpResponse]
Names = dict[tuple[str, str], frozenset[str]]


class known_parameters:  # noqa: N801 - named in MIDDLEWARE like functions
    def __init__(self, get_response: Answer) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: object) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or not match.route.startswith(API) or not request.GET:
            return None
        known = _parameters().get((request.method or "", f"/{match.route}"))
        if known is None:
            return None
        allowed = f"Not one of: {', '.join(sorted(known))}." if known else "This address takes no parameters."
        wrong = [
            FieldError(field=name[:100], value=value[:500], message=allowed)
            for name, value in request.GET.items()
            if name not in known
        ]
        return answer_of(422, fields=wrong) if wrong else None


@cache
def _parameters() -> Names:
    from dashboard.api.document import document  # imported late: the document imports the URL configuration

    return {
        (method.upper(), re.sub(r"\{(\w+)\}", r"<int:\1>", path)): frozenset(
            each["name"] for each in operation.get("parameters", []) if each["in"] == "query"
        )
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    }
