"""The pages of the documentation in all sizes and themes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.urls import reverse

from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_pages_of_the_documentation(read_as: Callable[..., Reader]) -> None:
    names = ("index", "configure", "errors", "programs")
    check_pages(read_as(), {name: reverse("documentation", args=[name]) for name in names}, "documentation-")
