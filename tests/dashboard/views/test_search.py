"""The search box suggests jobs, clusters, incidents and pages."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

pytestmark = pytest.mark.django_db


def _offered(client: Client, text: str) -> list[tuple[str, str, str]]:
    """Return the suggestions as URL, name and type."""
    page = client.get(reverse("find"), {"q": text}).content.decode()
    return re.findall(r'href="([^"]+)"[^>]*><span class="clip">([^<]+)</span><span[^>]*>([^<]+)</span>', page)


def test_pages_are_found_by_their_names_in_the_readers_language_and_in_english(operator: Client) -> None:
    assert _offered(operator, "cha") == [("/channels/", "Channels", "page")]
    operator.cookies["django_language"] = "zh-hans"
    assert _offered(operator, "通知") == _offered(operator, "cha") == [("/channels/", "通知渠道", "页面")]
    assert not re.search("[A-Za-z]", "".join(name + kind for _, name, kind in _offered(operator, "")))
