"""Every route of the URL configuration is called with every method for every type of account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.template.backends.django import Template
from django.test import Client
from django.urls import reverse

from dashboard.access import tokens
from monitoring.models import Account, Cluster, Discovery, Grant
from tests.dashboard.access.permissions import PERMISSIONS
from tests.dashboard.access.routes import address_of, all_routes
from tests.dashboard.access.sample_rows import SECRET, Rows, rows_of_every_kind

ORDER = ("open", "viewer", "operator", "admin", "reporter", "nobody")
GLOBAL_ROUTES = ("audit", "channels", "discoveries", "health/page", "mail", "code", "runbooks")
# Routes with status 404 also for allowed accounts: mail is not stored, and the token belongs to another account.
MAY_BE_EMPTY = (
    "api/v1/jobs/<int:job_id>/state-reads/<",
    "api/v1/views/<",
    "grants/<",
    "tokens/<",
    "users/<",
    "views/<",
    "mail/<",
    "me/tokens/<",
    "rules/backtest/<slug:kind>.json",
)
ROUTES = list(dict.fromkeys(all_routes()))


@dataclass(frozen=True)
class Person:
    """An account. `role` is its role in the API. Pages do not accept a token."""

    name: str
    role: str
    client: Client
    headers: dict[str, str]
    may_write: bool = True

    def is_allowed(self, route: str) -> str:
        by_token = bool(self.headers)
        return "open" if by_token and (not route.startswith("api/") or route == "api/v1/docs") else self.role


@pytest.fixture
def hidden(db: None, now: datetime) -> Rows:
    return rows_of_every_kind(now, "hidden")


@pytest.fixture
def people(hidden: Rows, now: datetime, settings: Any) -> list[Person]:
    settings.API_CALLS_PER_MINUTE = 100_000
    made: list[Person] = [Person("anonymous", "open", Client(), {})]
    flags = {"viewer": {}, "operator": {"is_staff": True}, "admin": {"is_staff": True, "is_superuser": True}}
    for role, own in flags.items():
        made.append(Person(role, role, logged_in(User.objects.create_user(role, **own)), {}))
    admin = User.objects.get(username="admin")
    for name, may_write in (("read", False), ("write", True)):
        secret = tokens.make(admin, name, may_write, now + timedelta(days=1), "admin", now).secret
        role = "admin" if may_write else "viewer"
        made.append(Person(f"{name} token", role, Client(), {"Authorization": f"Bearer {secret}"}, may_write))
    reported = Cluster.objects.create(name="reported", discovery=Discovery.AGENT, next_poll_at=now)
    secret = tokens.make(admin, "report", False, None, "admin", now, reported).secret
    made.append(Person("report token", "reporter", Client(), {"Authorization": f"Bearer {secret}"}))
    return made


@pytest.fixture
def outsider(hidden: Rows, now: datetime) -> Client:
    """Return the client of an account that is an operator of another cluster only."""
    user = User.objects.create_user("outsider")
    Account.objects.create(user=user, granted_only=True)
    other = rows_of_every_kind(now, "seen")
    Grant.objects.create(user=user, role="operator", cluster=other.cluster, created_at=now, created_by="admin")
    return logged_in(user)


def logged_in(user: User) -> Client:
    client = Client(raise_request_exception=True)
    client.force_login(user)
    return client


def methods_of(route: str) -> Iterator[tuple[str, str]]:
    """Yield the methods of a route, each with the least role."""
    for entry in PERMISSIONS[route].split(", "):
        method, _, role = entry.partition(" ")
        yield method, role


def call(client: Client, method: str, path: str, headers: dict[str, str] | None = None) -> HttpResponse:
    """Send a request, and roll back its changes."""
    send: Callable[..., Any] = getattr(client, method.lower())
    as_json = path.startswith("/api/") and method != "GET"
    body: dict[str, Any] = {"data": "{}", "content_type": "application/json"} if as_json else {}
    cookies = client.cookies.copy()  # restored below, because the request may log the client out
    with transaction.atomic():
        response: HttpResponse = send(path, headers=headers or {}, **body)
        if not response.streaming:
            response.content  # noqa: B018 - rendered while the rows are there
        transaction.set_rollback(True)
    client.cookies = cookies
    return response


@contextmanager
def skip_rendering() -> Iterator[None]:
    """Do not render pages, because permissions are checked before and rendering takes most of the time.

    The tests below read pages and show that they can be rendered.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Template, "render", lambda self, context=None, request=None: "")
        yield


def verdict(response: HttpResponse) -> str:
    """Return `in` for a request that was allowed, else the type of its refusal."""
    to_login = response.status_code == 302 and response.headers["Location"].startswith(f"{reverse('login')}?next=")
    if to_login or response.status_code == 401:
        return "log in first"
    return {403: "forbidden", 404: "not there"}.get(response.status_code, "in")


def expected(role: str, least: str, *, by_api: bool) -> str:
    if least == "nobody":
        return "log in first" if by_api and role == "open" else "not there"
    if ORDER.index(role) >= ORDER.index(least):
        return "in"
    return "log in first" if role == "open" else "forbidden"


def test_every_route_is_in_the_permission_table() -> None:
    assert sorted(PERMISSIONS) == sorted(ROUTES), "add a line to tests/dashboard/access/permissions.py"


def test_access_matches_the_permission_table(people: list[Person], hidden: Rows) -> None:
    wrong = []
    for route in ROUTES:
        path = address_of(route, hidden.ids)
        for method, least in methods_of(route):
            for person in people:
                role = person.is_allowed(route)
                reports = role == "reporter"
                if method == "GET" and least != "nobody" and not reports and ORDER.index(role) > ORDER.index(least):
                    continue  # a higher role may read too
                with skip_rendering():
                    found = verdict(call(person.client, method, path, person.headers))
                wanted = expected(role, least, by_api=route.startswith("api/"))
                if reports and least != "reporter":
                    wanted = "forbidden"
                if wanted == "in" and method != "GET" and not person.may_write and route.startswith("api/"):
                    wanted = "forbidden"
                if found != wanted and not (route.startswith(MAY_BE_EMPTY) and found == "not there"):
                    wrong.append(f"{method} {path}: {person.name} is {found}, should be {wanted}")
    assert wrong == [], "\n".join(wrong)


def test_hidden_cluster_is_not_found(outsider: Client, hidden: Rows) -> None:
    wrong = []
    for route in ROUTES:
        path = address_of(route, hidden.ids)
        about_one = ("<int:" in route and "admin" not in PERMISSIONS[route]) or route.removeprefix(
            "api/v1/"
        ).startswith(GLOBAL_ROUTES)
        for method, least in methods_of(route):
            if least in ("open", "nobody"):
                continue
            response = call(outsider, method, path)
            if about_one and verdict(response) != "not there":
                wrong.append(f"{method} {path} is {response.status_code}, should be 404")
            page = response.content.decode(errors="replace") if not response.streaming else ""
            if any(word in page for word in hidden.words):
                wrong.append(f"{method} {path} tells of it")
    assert wrong == [], "\n".join(wrong)


def test_account_can_act_only_within_its_grants(outsider: Client, hidden: Rows) -> None:
    own = rows_of_own_cluster()
    for name in ("job", "job-savepoints", "job-history", "job-alerts", "job-configuration", "job-launch"):
        assert outsider.get(reverse(name, args=[own.pk])).status_code == 200
    assert b"seen-job" in outsider.get(reverse("fleet")).content
    assert outsider.post(reverse("job-savepoint", args=[own.pk])).status_code == 302
    assert outsider.post("/api/v1/pauses", {"reason": "x"}, content_type="application/json").status_code == 404


def rows_of_own_cluster() -> Any:
    from monitoring.models import Job

    return Job.objects.get(name="seen-job")


def test_responses_contain_no_secret_of_a_launch_record(people: list[Person], hidden: Rows) -> None:
    admin = next(person for person in people if person.name == "admin")
    text = [
        path
        for route in ROUTES
        for path in [address_of(route, hidden.ids)]
        if "GET" in dict(methods_of(route)) and SECRET in _text(call(admin.client, "GET", path))
    ]
    assert text == []


def _text(response: HttpResponse) -> str:
    return "" if response.streaming else response.content.decode(errors="replace")
