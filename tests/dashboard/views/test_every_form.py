"""Every form of every page refuses bad input with a message, keeps the input, and never fails with a server error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from html import escape
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from tests.dashboard.access.permissions import PERMISSIONS
from tests.dashboard.access.sample_rows import rows_of_every_kind
from tests.dashboard.access.test_permission_table import address_of

# Forms that change no data, end the session, or run a program on the cluster of the scene.
_LEFT_OUT = re.compile(r"logout|language/|log-out|/password/|/test/|/restart/|/launch/|nav/")
# Forms whose response shows the input: the name of a token, and the preview of YAML.
_SHOWS = ("/me/tokens/", "/code/")
_NO_PAGE = re.compile(r"^api/|\.json|\.csv|\.<slug:form>|\.yaml|healthz|^health$|metrics|oidc|<slug:kind>")
SENT = {
    "markup": "<script>alert(1)</script> 😀",
    "far too long": "x" * 6000,
    "a NUL": "a\0b",
}


class Forms(HTMLParser):
    """A parser that collects the forms of a page with their values and the names of text fields."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self._form: dict[str, Any] | None = None
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "form":
            self._form = {"action": given.get("action", ""), "method": given.get("method", "get"), "holds": {}}
            self._form["typed"] = []
            self.found.append(self._form)
        elif self._form is None or (not name and tag != "option"):
            return
        elif tag == "select":
            self._select = name
        elif tag == "option":
            if "selected" in given or self._select not in self._form["holds"]:
                self._form["holds"][self._select] = given.get("value", "")
        elif tag == "textarea" or given.get("type", "text") not in ("hidden", "file", "checkbox", "radio"):
            self._form["typed"] += [name] if tag in ("textarea", "input") else []
        elif given.get("type") == "hidden" or "checked" in given:
            self._form["holds"][name] = given.get("value", "on")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None


def forms_of(client: Client, address: str) -> Iterator[dict[str, Any]]:
    page = client.get(address)
    if page.status_code != 200 or "html" not in page.headers["Content-Type"]:
        return
    parser = Forms()
    parser.feed(page.content.decode())
    for form in parser.found:
        form["action"] = form["action"] or address
        if form["typed"] and not _LEFT_OUT.search(form["action"]):
            yield form


def test_every_form_handles_invalid_input_and_keeps_it(db: None, now: datetime) -> None:
    ids = rows_of_every_kind(now, "whole").ids
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("anna"))
    pages = [
        address_of(route, ids)
        for route, methods_of in PERMISSIONS.items()
        if "GET" in methods_of and not _NO_PAGE.search(route)
    ]
    pages += [f"/channels/add/{kind}/" for kind in ("mail", "webhook", "apprise")] + ["/rules/new/failed_in_window/"]
    wrong, seen = [], set()
    for page in pages:
        for form in forms_of(client, page):
            if (form["action"], *form["typed"]) in seen:
                continue
            seen.add((form["action"], *form["typed"]))
            for what, text in SENT.items():
                data = form["holds"] | dict.fromkeys(form["typed"], text)
                response = getattr(client, form["method"].lower())(form["action"], data)
                shown = response.content.decode() if not response.streaming else ""
                taken = response.status_code < 300 and form["method"] == "post" and form["action"] not in _SHOWS
                if response.status_code >= 500 or taken:
                    wrong.append(f"{form['action']} with {what}: {response.status_code}")
                if "<script>alert(1)" in shown:
                    wrong.append(f"{form['action']} runs {what}")
                if response.status_code == 422 and what == "markup" and escape(text) not in shown:
                    wrong.append(f"{form['action']} loses {what}")
    assert len(seen) > 25
    assert wrong == [], "\n".join(wrong)
