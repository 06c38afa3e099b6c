"""The pages about access in all sizes and themes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from dashboard.access import accounts, tokens
from monitoring.models import ApiToken
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def admin_user(db: None, now: datetime) -> User:
    """Create an administrator with valid, revoked and expired tokens, and other accounts with grants."""
    admin = User.objects.create_superuser("anna", "anna@example.org", "pw-anna-long")
    for name, may_write, age in (("nightly report", False, 0), ("deploy pipeline", True, 0), ("old script", True, 40)):
        then = now - timedelta(days=age)
        tokens.make(admin, name, may_write, then + timedelta(days=30), "anna", then)
    tokens.revoke(ApiToken.objects.get(name="deploy pipeline"), "anna", now)
    cluster = make.make_cluster(now, "eu-prod")
    for number, role in enumerate(("viewer", "operator", "nothing", "viewer")):
        user = accounts.create(f"person-{number}", f"person-{number}@example.org", "pw-long-enough-7", role, "anna")
        if role == "nothing":
            accounts.grant(user, "operator", cluster, "", "anna", now)
            accounts.grant(user, "viewer", None, "team=payments,env!=dev", "anna", now)
    return admin


def test_pages_about_access(read_as: Callable[..., Reader], admin_user: User) -> None:
    granted = User.objects.get(username="person-2")
    pages = {
        "tokens": reverse("tokens"),
        "users": reverse("users"),
        "user": reverse("user", args=[granted.pk]),
        "user-delete": reverse("user-delete", args=[granted.pk]),
        "me": reverse("me"),
        "audit": reverse("audit") + "?action=user.",
    }
    check_pages(read_as(user=admin_user), pages, "access-")


def test_a_token_is_created_copied_and_not_shown_again(read_as: Callable[..., Reader], admin_user: User) -> None:
    reader = read_as("wide", "light", admin_user)
    page = reader.open(reverse("fleet"))
    page.get_by_text("anna", exact=True).click()
    reader.picture("access-menu-wide-light", whole=False)
    page.get_by_role("link", name="API tokens").click()
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_role("alert")).to_contain_text("Enter the name of the program")
    page.get_by_label("Name").fill("from the browser")
    page.get_by_label("Your password").fill("pw-anna-long")
    page.get_by_role("button", name="Create token").click()
    secret = page.get_by_label("The token", exact=True).input_value()
    assert tokens.digest_of(secret) == ApiToken.objects.get(name="from the browser").digest
    reader.picture("access-token-made-wide-light")
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Cop").or_(page.get_by_role("button", name="Selected"))).to_be_visible()
    reader.open(reverse("tokens"))
    assert secret not in page.content()
    assert [each for each in reader.complaints if "422" not in each] == []  # the empty form was refused
