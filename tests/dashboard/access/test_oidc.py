"""Log in through a running OpenID Connect provider: its redirects, and every response that must be refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboard.access import oidc
from monitoring.models import Account, AuditEntry
from tests.dashboard.access.provider import CLIENT_ID, CLIENT_SECRET, Provider, serving


@pytest.fixture
def provider(db: None, settings: Any) -> Iterator[Provider]:
    with serving(Provider()) as running:
        settings.OIDC_ISSUER, settings.OIDC_NAME = running.issuer, "Example"
        settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET
        settings.PUBLIC_URL = "http://testserver"
        oidc._registered.cache_clear()
        yield running


def log_in(client: Client, **query: str) -> Any:
    """Log in as a browser does: follow the redirects to the provider and back to Waymark."""
    away = client.get(reverse("oidc-begin"), query)
    assert away.status_code == 302, away.content
    back = requests.get(away.headers["Location"], allow_redirects=False, timeout=5).headers["Location"]
    assert back.startswith("http://testserver/")
    return client.get(back.removeprefix("http://testserver"))


def refused(client: Client, saying: str) -> None:
    answer = log_in(client)
    assert answer.headers["Location"] == reverse("login")
    assert saying in client.get(reverse("login")).content.decode()
    assert "_auth_user_id" not in client.session
    assert not User.objects.filter(username="ida").exists()


def test_first_login_creates_a_viewer_and_the_second_reuses_it(provider: Provider) -> None:
    client = Client()
    assert log_in(client).headers["Location"] == reverse("fleet")
    assert client.get(reverse("fleet")).status_code == 200
    user = User.objects.get(username="ida")
    assert (user.is_staff, user.has_usable_password()) == (False, False)
    log_in(Client())
    assert User.objects.count() == 1
    assert AuditEntry.objects.filter(action="user.log-in", actor="ida").count() == 2


def test_login_redirects_only_to_the_requested_local_page(provider: Provider) -> None:
    assert log_in(Client(), next="/incidents/").headers["Location"] == "/incidents/"
    assert log_in(Client(), next="https://evil.example/").headers["Location"] == reverse("fleet")
    assert log_in(Client(), next="//evil.example/").headers["Location"] == reverse("fleet")


def test_login_with_a_taken_name_does_not_take_over_the_account(provider: Provider) -> None:
    own = User.objects.create_superuser("ida", password="pw-ida-own-1")
    log_in(Client())
    made = Account.objects.get(oidc_subject="s-1").user
    assert (made.username, made.pk != own.pk, made.is_superuser) == ("ida-2", True, False)


def test_groups_grant_and_revoke_the_role(provider: Provider, settings: Any) -> None:
    settings.OIDC_OPERATOR_GROUPS, settings.OIDC_VIEWER_GROUPS = ["sre"], ["staff"]
    provider.person["groups"] = ["staff", "sre"]
    log_in(Client())
    assert User.objects.get().is_staff
    provider.person["groups"] = ["staff"]
    log_in(Client())
    assert not User.objects.get().is_staff
    assert AuditEntry.objects.get(action="user.change").details["now"]["role"] == "viewer"


def test_login_without_a_group_is_refused(provider: Provider, settings: Any) -> None:
    settings.OIDC_VIEWER_GROUPS = ["staff"]
    provider.person["groups"] = ["guests"]
    refused(Client(), "none of the groups")


@pytest.mark.parametrize(
    "wrong_claims",
    [{"aud": "somebody-else"}, {"iss": "https://evil.example"}, {"nonce": "another"}, {"exp": 1}, {"sub": ""}],
    ids=lambda wrong_claims: next(iter(wrong_claims)),
)
def test_token_for_another_audience_is_refused(provider: Provider, wrong_claims: dict[str, Any]) -> None:
    provider.wrong_claims = wrong_claims
    answer = log_in(Client())
    assert answer.headers["Location"] == reverse("login")
    assert not User.objects.exists()


def test_token_with_a_foreign_signature_is_refused(provider: Provider) -> None:
    provider.uses_wrong_key = True
    refused(Client(), "cannot be trusted")


def test_unrequested_code_is_refused(provider: Provider) -> None:
    client = Client()
    answer = client.get(reverse("oidc-back"), {"code": "stolen", "state": "guessed"})
    assert answer.headers["Location"] == reverse("login")
    assert "_auth_user_id" not in client.session


def test_inactive_account_cannot_log_in(provider: Provider) -> None:
    log_in(Client())
    User.objects.update(is_active=False)
    assert log_in(Client()).headers["Location"] == reverse("login")


def test_unreachable_provider_is_reported(db: None, settings: Any) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME, settings.OIDC_CLIENT_ID = "http://127.0.0.1:1", "Example", CLIENT_ID
    oidc._registered.cache_clear()
    client = Client()
    assert client.get(reverse("oidc-begin")).headers["Location"] == reverse("login")
    assert "Example does not answer" in client.get(reverse("login")).content.decode()


def test_oidc_login_is_absent_without_a_provider(db: None) -> None:
    assert Client().get(reverse("oidc-begin")).status_code == 404
    assert "oidc" not in Client().get(reverse("login")).content.decode()
