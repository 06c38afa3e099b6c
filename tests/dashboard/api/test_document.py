"""The OpenAPI document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ninja import Schema

from dashboard.api.document import document


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
