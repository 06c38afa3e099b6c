"""The OpenAPI document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from django.test import Client
from django.urls import clear_script_prefix, reverse, set_script_prefix
from ninja import Schema

from dashboard.api import parameters
from dashboard.api.document import api, document
from dashboard.api.operations import REFUSALS


def schemas(of: type[Schema] = Schema) -> Iterator[type[Schema]]:
    for each in of.__subclasses__():
        yield each
        yield from schemas(each)


def test_schema_names_are_unique() -> None:
    """The document identifies schemas by name, so of two with one name it describes only one."""
    described = document()["components"]["schemas"]
    ours = {(each.__module__, each.__name__) for each in schemas() if each.__name__ in described}
    assert ("dashboard.api.schemas.jobs", "JobOut") in ours
    assert [name for name, count in Counter(name for _module, name in ours).items() if count > 1] == []


def test_the_document_is_made_once_for_each_prefix_of_the_address() -> None:
    made = api.get_openapi_schema()
    set_script_prefix("/waymark/")
    try:
        assert all(path.startswith("/waymark/api/v1/") for path in document()["paths"])
    finally:
        clear_script_prefix()
    assert api.get_openapi_schema() is made


def test_every_operation_describes_every_refusal() -> None:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            described = operation["responses"]
            assert set(REFUSALS) <= described.keys(), (method, path)
            assert described[404] == described[409] | {"description": "Not Found"}


@pytest.mark.django_db
def test_only_addresses_of_the_api_need_the_document() -> None:
    """A page with parameters must not wait until a new process has made it."""
    parameters._parameters.cache_clear()
    assert Client().get(reverse("login"), {"next": reverse("clusters")}).status_code == 200
    assert parameters._parameters.cache_info().currsize == 0
    assert Client().get("/api/v1/jobs", {"cursor": "x"}).status_code == 401
    assert parameters._parameters.cache_info().currsize == 0
