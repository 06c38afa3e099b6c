"""The context of a page is released as soon as the page is rendered."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import AnonymousUser
from django.template import TemplateDoesNotExist
from django.template.loader import get_template, render_to_string
from django.test import RequestFactory


class Rows(list[str]):
    """A list that can have weak references."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_rendered_page_frees_its_rows_without_the_garbage_collector() -> None:
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    rows = Rows()
    held = weakref.ref(rows)

    assert "payments" in render_to_string("parts/hits.html", {"hits": rows, "text": "payments"}, request)
    del rows

    assert held() is None


def test_a_template_that_is_missing_is_named() -> None:
    with pytest.raises(TemplateDoesNotExist, match="parts/nowhere"):
        get_template("parts/nowhere.html")
