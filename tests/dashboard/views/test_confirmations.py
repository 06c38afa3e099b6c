"""Deleting and revoking ask first: a GET request shows the question, and only a POST request acts."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dashboard.access import tokens
from monitoring.models import AlertRule, ApiToken, Grant, SavedView
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("anna"))
    return client


def ask(client: Client, address: str, question: str, back: str) -> None:
    page = client.get(address)
    assert page.status_code == 200
    assert question in page.content.decode()
    assert f'href="{back}"' in page.content.decode()


def test_deleting_a_rule_requires_a_confirmation(admin: Client, now: datetime) -> None:
    rule = make.make_rule(make.make_job(make.make_cluster(now), "orders"))
    address, back = reverse("rule-remove", args=[rule.pk]), reverse("rule", args=[rule.pk])
    assert f'href="{address}"' in admin.get(back).content.decode()
    ask(admin, address, "of the job orders?", back)
    assert AlertRule.objects.filter(pk=rule.pk).exists()
    assert admin.post(address).status_code == 302
    assert not AlertRule.objects.filter(pk=rule.pk).exists()


def test_deleting_the_last_rule_of_a_default_kind_does_not_ask(admin: Client) -> None:
    rule = AlertRule.objects.create(name="Restart loop", kind="restart_loop")
    page = admin.get(reverse("rule-remove", args=[rule.pk]), follow=True)
    assert page.redirect_chain == [(reverse("rule", args=[rule.pk]), 302)]
    assert "Disable it instead" in page.content.decode()


def test_deleting_a_view_requires_a_confirmation(admin: Client) -> None:
    view = SavedView.objects.create(user=User.objects.get(), name="Payments", query="state=failing")
    address = reverse("view-forget", args=[view.pk])
    ask(admin, address, "Delete the view “Payments”?", f"{reverse('fleet')}?state=failing")
    assert SavedView.objects.exists()
    assert admin.post(address).status_code == 302
    assert not SavedView.objects.exists()


def test_revoking_a_grant_requires_a_confirmation(admin: Client, now: datetime) -> None:
    user = User.objects.create_user("grace")
    grant = Grant.objects.create(
        user=user, role="operator", cluster=make.make_cluster(now), created_at=now, created_by="anna"
    )
    address, back = reverse("grant-take", args=[grant.pk]), reverse("user", args=[user.pk])
    ask(admin, address, "Revoke the grant of grace", back)
    assert Grant.objects.exists()
    assert admin.post(address).status_code == 302
    assert not Grant.objects.exists()


@pytest.mark.parametrize("name", ["token-revoke", "user-token-revoke"])
def test_revoking_a_token_requires_a_confirmation(admin: Client, now: datetime, name: str) -> None:
    user = User.objects.get()
    tokens.make(user, "pipeline", False, now + timedelta(days=1), "anna", now)
    token = ApiToken.objects.get()
    address = reverse(name, args=[token.pk])
    back = reverse("tokens") if name == "token-revoke" else reverse("user", args=[user.pk])
    ask(admin, address, "Revoke the token “pipeline”?", back)
    token.refresh_from_db()
    assert token.revoked_at is None
    assert admin.post(address).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None
