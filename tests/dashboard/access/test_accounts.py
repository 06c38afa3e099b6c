"""Accounts are created, changed and deactivated. Sessions end, failed log-ins are limited, and grants are respected."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard.access import accounts, log_in, sessions, tokens
from dashboard.access.confirming import RECENT
from dashboard.audit_texts import action_text
from monitoring.models import Account, AuditEntry, Grant, LogInFailure
from tests.dashboard import builders as make

PASSWORD = "correct horse battery"
NEW_TOKEN = {"name": "report", "may": "read", "lasts": "30", "password": "pw-victor-1"}


@pytest.fixture
def admin_user(db: None) -> User:
    return User.objects.create_superuser("anna", password=PASSWORD)


@pytest.fixture
def admin(admin_user: User) -> Client:
    client = Client()
    client.force_login(admin_user)
    return client


def entry(action: str) -> AuditEntry:
    return AuditEntry.objects.get(action=action)


def try_to_log_in(client: Client, name: str, password: str, address: str = "192.0.2.1") -> Any:
    return client.post(reverse("login"), {"username": name, "password": password}, REMOTE_ADDR=address)


def test_created_account_has_its_role_and_can_log_in(admin: Client) -> None:
    typed = {"username": "otto", "password": "a long enough one", "role": "operator", "email": "otto@example.org"}
    assert admin.post(reverse("users"), typed).status_code == 302
    assert User.objects.get(username="otto").is_staff
    assert try_to_log_in(Client(), "otto", "a long enough one").status_code == 302
    assert entry("user.create").details == {"now": {"role": "operator", "email": "otto@example.org"}}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"username": "anna"}, "account with this name already"),
        ({"username": "ANNA"}, "account with this name already"),
        ({"password": "12345678"}, "too common"),
        ({"password": "short"}, "too short"),
        ({"role": "king"}, "Select a valid choice"),
        ({"username": "a b"}, "Enter a valid username"),
    ],
)
def test_account_form_errors_appear_at_their_fields_and_keep_the_input(
    admin: Client, typed: dict[str, str], expected: str
) -> None:
    whole = {"username": "otto", "password": "a long enough one", "role": "viewer", "email": "o@example.org"} | typed
    answer = admin.post(reverse("users"), whole)
    assert answer.status_code == 422
    assert expected in answer.content.decode()
    assert 'value="o@example.org"' in answer.content.decode()
    assert "a long enough one" not in answer.content.decode()  # the response does not repeat the password
    assert User.objects.count() == 1


def test_a_change_is_audited_with_before_and_after(admin: Client, viewer_user: User) -> None:
    admin.post(reverse("user", args=[viewer_user.pk]), {"role": "operator", "email": ""})
    assert entry("user.change").details["was"]["role"] == "viewer"
    assert entry("user.change").details["now"]["role"] == "operator"


def test_last_administrator_cannot_be_demoted(admin: Client, admin_user: User) -> None:
    demoted = admin.post(reverse("user", args=[admin_user.pk]), {"role": "viewer", "email": ""})
    assert "only active administrator" in demoted.content.decode()
    admin.post(reverse("user-activate", args=[admin_user.pk]), {"active": "no"})
    admin_user.refresh_from_db()
    assert (admin_user.is_superuser, admin_user.is_active) == (True, True)


def test_deactivation_ends_the_session_at_once(admin: Client, viewer: Client, viewer_user: User, now: datetime) -> None:
    secret = tokens.make(viewer_user, "t", True, None, "victor", now).secret
    admin.post(reverse("user-activate", args=[viewer_user.pk]), {"active": "no"})
    assert viewer.get(reverse("fleet")).status_code == 302
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert try_to_log_in(Client(), "victor", "pw-victor-1").status_code == 200


def test_logging_out_everywhere_ends_every_session(viewer_user: User) -> None:
    here, there = Client(), Client()
    for client in (here, there):
        assert try_to_log_in(client, "victor", "pw-victor-1").status_code == 302
    here.post(reverse("me-log-out"))
    assert [client.get(reverse("fleet")).status_code for client in (here, there)] == [302, 302]
    assert try_to_log_in(here, "victor", "pw-victor-1").status_code == 302
    assert here.get(reverse("fleet")).status_code == 200


def test_new_password_ends_all_other_sessions(viewer_user: User) -> None:
    here, there = Client(), Client()
    for client in (here, there):
        try_to_log_in(client, "victor", "pw-victor-1")
    typed = {"old_password": "pw-victor-1", "new_password1": PASSWORD, "new_password2": PASSWORD}
    assert here.post(reverse("me-password"), typed).status_code == 302
    assert [client.get(reverse("fleet")).status_code for client in (here, there)] == [200, 302]


def test_a_session_ends_after_its_longest_time(viewer: Client, settings: Any, now: datetime) -> None:
    assert viewer.get(reverse("fleet")).status_code == 200
    session = viewer.session
    session[sessions._STARTED] = (now - timedelta(seconds=settings.SESSION_LONGEST_S + 1)).isoformat()
    session.save()
    assert viewer.get(reverse("fleet")).status_code == 302


def test_active_session_is_renewed_periodically(viewer: Client, now: datetime) -> None:
    assert settings_cookie(viewer.get(reverse("fleet"))) is None
    session = viewer.session
    session[sessions._RENEWED] = (now - timedelta(minutes=11)).isoformat()
    session.save()
    assert settings_cookie(viewer.get(reverse("fleet"))) is not None
    assert settings_cookie(viewer.get(reverse("fleet"))) is None


def settings_cookie(response: Any) -> Any:
    return response.cookies.get("sessionid")


def test_times_are_in_the_users_own_zone(viewer: Client, viewer_user: User) -> None:
    assert viewer.post(reverse("me"), {"time_zone": "Asia/Tokyo"}).status_code == 302
    assert Account.objects.get(user=viewer_user).time_zone == "Asia/Tokyo"
    assert "JST" in viewer.get(reverse("me")).content.decode()
    assert viewer.post(reverse("me"), {"time_zone": "Mars/Olympus"}).status_code == 422
    assert timezone.get_current_timezone_name() == "UTC"


@pytest.mark.parametrize("stored", [False, True])
def test_account_without_a_zone_has_that_of_the_browser(viewer: Client, viewer_user: User, *, stored: bool) -> None:
    if stored:
        Account.objects.create(user=viewer_user, time_zone="")
    viewer.cookies[sessions.ZONE_COOKIE] = "Asia/Kathmandu"
    page = viewer.get(reverse("me")).content.decode()
    assert 'data-zone="Asia/Kathmandu"' in page
    assert "UTC+5:45" in page
    Account.objects.update_or_create(user=viewer_user, defaults={"time_zone": "America/St_Johns"})
    page = viewer.get(reverse("me")).content.decode()
    assert 'data-zone="America/St_Johns"' in page
    assert f"UTC{chr(0x2212)}" in page


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "Asia", "../../etc/passwd", "/etc/passwd", "a" * 4000])
def test_unknown_zone_of_a_browser_is_ignored(viewer: Client, name: str) -> None:
    viewer.cookies[sessions.ZONE_COOKIE] = name
    assert 'data-zone="UTC"' in viewer.get(reverse("me")).content.decode()


def test_login_limit_also_blocks_the_right_password(admin_user: User) -> None:
    for _ in range(log_in.MOST_PER_USER):
        assert try_to_log_in(Client(), "anna", "wrong").status_code == 200
    stopped = try_to_log_in(Client(), "anna", PASSWORD)
    assert stopped.status_code == 429
    assert 0 < int(stopped.headers["Retry-After"]) <= 15 * 60
    assert "15 min" in stopped.content.decode()
    assert "from 192.0.2.1" in entry("user.log-in-limited").reason


def test_login_limit_of_a_name_does_not_apply_to_known_browsers(admin_user: User) -> None:
    own = Client()
    assert try_to_log_in(own, "anna", PASSWORD, "198.51.100.7").status_code == 302
    own.post(reverse("logout"))
    for number in range(log_in.MOST_PER_USER + 5):
        try_to_log_in(Client(), "ANNA", "wrong", f"203.0.113.{number}")
    assert try_to_log_in(Client(), "anna", PASSWORD, "203.0.113.99").status_code == 429
    assert try_to_log_in(own, "anna", PASSWORD, "198.51.100.7").status_code == 302


def test_a_known_browser_has_a_separate_login_limit(admin_user: User) -> None:
    own = Client()
    try_to_log_in(own, "anna", PASSWORD)
    own.post(reverse("logout"))
    codes = [try_to_log_in(own, "anna", "wrong").status_code for _ in range(log_in.MOST_PER_USER + 1)]
    assert codes == [200] * log_in.MOST_PER_USER + [429]


def fail(*names: str, at: datetime) -> None:
    for name in names:
        log_in.failed(log_in.Attempt(name, "", "192.0.2.1", known_device=False), at)


# Spellings that Django's field converts to "anna" by NFKC, and one that differs in case.
SPELLINGS = ["ａnna", "aⓝna", "an𝐧a", "ann𝕒", "ⓐⓝⓝⓐ", "ａｎｎａ", "𝒂𝒏𝒏𝒂", "𝖺𝗇𝗇𝖺", "ａⓝ𝐧𝕒", "ANNA"]


def test_all_spellings_of_a_name_count_as_one(admin_user: User) -> None:
    addresses = [f"203.0.113.{number}" for number in range(log_in.MOST_PER_USER)]
    for spelling, address in zip(SPELLINGS, addresses, strict=True):
        assert try_to_log_in(Client(), spelling, "wrong", address).status_code == 200
    for spelling in ("anna", "ａnna", " ANNA", "𝖺nna"):
        assert try_to_log_in(Client(), spelling, PASSWORD, "203.0.113.99").status_code == 429
    assert AuditEntry.objects.filter(action="user.log-in-failed", target="user anna").count() == len(SPELLINGS)


def test_addresses_of_one_ipv6_network_count_as_one(db: None, now: datetime) -> None:
    for number in range(log_in.MOST_PER_ADDRESS):
        try_to_log_in(Client(), f"u{number}", "x", f"2001:db8:1:2::{number:x}")
    assert try_to_log_in(Client(), "new", "x", "2001:db8:1:2:ffff::1").status_code == 429
    assert try_to_log_in(Client(), "new", "x", "2001:db8:1:3::1").status_code == 200


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_an_address_counts_with_its_network(address: str, counted: str) -> None:
    assert log_in.Attempt("anna", "anna", address, known_device=False).counted_address == counted


def test_log_ins_are_in_the_audit_log(admin_user: User) -> None:
    try_to_log_in(Client(), "anna", "wrong", "198.51.100.7")
    try_to_log_in(Client(), "anna", PASSWORD, "198.51.100.8")
    failed, done = entry("user.log-in-failed"), entry("user.log-in")
    assert (failed.actor, failed.target, failed.details) == ("anonymous", "user anna", {"address": "198.51.100.7"})
    assert (done.actor, done.target, done.details) == ("anna", "user anna", {"address": "198.51.100.8"})
    assert action_text(failed) == "failed to log in from 198.51.100.7"


def test_a_password_that_is_typed_as_the_name_is_stored_nowhere(admin_user: User) -> None:
    for _ in range(log_in.MOST_PER_USER):
        try_to_log_in(Client(), PASSWORD, "x")
    for rows in (AuditEntry.objects.values_list(), LogInFailure.objects.values_list()):
        assert "correct" not in str(list(rows))
    assert AuditEntry.objects.filter(action="user.log-in-failed", target="an unknown user").count() == 1
    assert LogInFailure.objects.count() == log_in.MOST_PER_USER


def test_one_address_cannot_try_many_users(db: None, now: datetime) -> None:
    fail(*(f"u{n}" for n in range(log_in.MOST_PER_ADDRESS)), at=now)
    assert try_to_log_in(Client(), "new", "x").status_code == 429
    assert try_to_log_in(Client(), "new", "x", "192.0.2.2").status_code == 200


def test_failures_before_the_window_do_not_count(admin_user: User, now: datetime) -> None:
    old = now - log_in.WINDOW - timedelta(seconds=1)
    fail(*["anna"] * 20, at=old)
    assert try_to_log_in(Client(), "anna", PASSWORD).status_code == 302


def test_forged_device_cookie_is_ignored(admin_user: User) -> None:
    client = Client()
    client.cookies[log_in.COOKIE] = "ImFubmEi:1abcde:forged"
    for _ in range(log_in.MOST_PER_USER):
        try_to_log_in(client, "anna", "wrong")
    assert not LogInFailure.objects.filter(known_device=True).exists()
    assert try_to_log_in(client, "anna", PASSWORD).status_code == 429


def test_a_grant_by_label_reaches_the_jobs_that_have_it_and_no_others(
    admin: Client, viewer_user: User, now: datetime
) -> None:
    cluster = make.make_cluster(now)
    ours = make.make_job(cluster, "ours", labels={"team": "payments"})
    theirs = make.make_job(cluster, "theirs", labels={"team": "search"})
    for job in (ours, theirs):
        make.make_run(job, now)
    accounts.change(viewer_user, "nothing", "", "anna")
    granted = admin.post(
        reverse("user-grant", args=[viewer_user.pk]), {"role": "operator", "selector": "team=payments"}
    )
    assert granted.status_code == 302
    client = Client()
    client.force_login(viewer_user)
    assert client.get(reverse("job", args=[ours.pk])).status_code == 200
    assert client.get(reverse("job", args=[theirs.pk])).status_code == 404
    assert client.post(reverse("job-savepoint", args=[ours.pk])).status_code == 302
    assert ours.savepoints.count() == 1
    page = client.get(reverse("fleet")).content.decode()
    assert ("ours" in page, "theirs" in page) == (True, False)
    admin.post(reverse("grant-take", args=[Grant.objects.get().pk]))
    assert client.get(reverse("job", args=[ours.pk])).status_code == 404
    assert entry("user.ungrant").details["was"]["on"] == "jobs with team=payments"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [({}, "Select a cluster"), ({"selector": "team=,x"}, "is not a term"), ({"role": "admin"}, "valid choice")],
)
def test_invalid_grant_is_refused(admin: Client, viewer_user: User, typed: dict[str, str], expected: str) -> None:
    answer = admin.post(reverse("user-grant", args=[viewer_user.pk]), {"role": "viewer"} | typed)
    assert (answer.status_code, expected in answer.content.decode()) == (422, True)
    assert not Grant.objects.exists()


def test_a_token_is_shown_only_when_it_is_created(viewer: Client, viewer_user: User) -> None:
    made = viewer.post(reverse("tokens"), NEW_TOKEN)
    assert made.status_code == 200
    assert "wmk_" in made.content.decode()
    token = viewer_user.api_tokens.get()
    again = viewer.get(reverse("tokens")).content.decode()
    assert f"{token.start}…" in again
    assert again.count("wmk_") == 1
    twice = viewer.post(reverse("tokens"), NEW_TOKEN)
    assert "with this name" in twice.content.decode()
    assert viewer.post(reverse("token-revoke", args=[token.pk])).status_code == 302
    assert viewer.post(reverse("tokens"), NEW_TOKEN).status_code == 200


def test_token_creation_requires_the_password(viewer: Client, viewer_user: User) -> None:
    for wrong, text in (("", "Enter your password"), ("nope", "This is not your password.")):
        answer = viewer.post(reverse("tokens"), NEW_TOKEN | {"password": wrong})
        assert (answer.status_code, text in answer.content.decode()) == (422, True)
    assert not viewer_user.api_tokens.exists()
    assert entry("user.confirm-failed").target == "user victor"
    for _ in range(log_in.MOST_PER_USER):
        viewer.post(reverse("tokens"), NEW_TOKEN | {"password": "nope"})
    limited = viewer.post(reverse("tokens"), NEW_TOKEN)
    assert (limited.status_code, "Too many wrong passwords" in limited.content.decode()) == (422, True)
    assert not viewer_user.api_tokens.exists()


def test_guesses_of_the_old_password_are_limited(viewer: Client, viewer_user: User) -> None:
    typed = {"old_password": "nope", "new_password1": PASSWORD, "new_password2": PASSWORD}
    for _ in range(log_in.MOST_PER_USER):
        assert "This is not your password." in viewer.post(reverse("me-password"), typed).content.decode()
    answer = viewer.post(reverse("me-password"), typed | {"old_password": "pw-victor-1"})
    assert (answer.status_code, "Too many wrong passwords" in answer.content.decode()) == (422, True)


def test_without_a_password_a_token_needs_a_recent_log_in(viewer: Client, viewer_user: User, now: datetime) -> None:
    viewer_user.set_unusable_password()
    viewer_user.save()
    viewer.force_login(viewer_user)
    typed = {name: value for name, value in NEW_TOKEN.items() if name != "password"}
    session = viewer.session
    session[sessions._STARTED] = (now - RECENT - timedelta(seconds=1)).isoformat()
    session.save()
    assert 'name="lasts"' not in viewer.get(reverse("tokens")).content.decode()
    refused = viewer.post(reverse("tokens"), typed)
    assert (refused.status_code, "Log in again first" in refused.content.decode()) == (422, True)
    assert not viewer_user.api_tokens.exists()
    viewer.force_login(viewer_user)
    made = viewer.post(reverse("tokens"), typed)
    assert (made.status_code, "wmk_" in made.content.decode()) == (200, True)


END_OF_ACCESS = ["own password", "password reset", "log out everywhere", "ended by an administrator", "deactivated"]


@pytest.mark.parametrize("how", END_OF_ACCESS)
def test_ending_all_sessions_revokes_the_tokens(
    admin: Client, viewer: Client, viewer_user: User, now: datetime, how: str
) -> None:
    made = tokens.make(viewer_user, "t", True, None, "victor", now)
    other = tokens.make(User.objects.get(username="anna"), "t", True, None, "anna", now)
    new = {"old_password": "pw-victor-1", "new_password1": PASSWORD, "new_password2": PASSWORD}
    client, name, arguments, typed = {
        "own password": (viewer, "me-password", [], new),
        "password reset": (admin, "user-password", [viewer_user.pk], {"password": PASSWORD}),
        "log out everywhere": (viewer, "me-log-out", [], {}),
        "ended by an administrator": (admin, "user-log-out", [viewer_user.pk], {}),
        "deactivated": (admin, "user-activate", [viewer_user.pk], {"active": "no"}),
    }[how]
    assert client.post(reverse(name, args=arguments), typed).status_code == 302
    admin.post(reverse("user-activate", args=[viewer_user.pk]), {"active": "yes"})
    for token, status in ((made, 401), (other, 200)):
        answer = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {token.secret}"})
        assert answer.status_code == status
    made.token.refresh_from_db()
    assert made.token.revoked_by == ("anna" if client is admin else "victor")
    assert entry("token.revoke").target == "token t of victor"


def test_account_deletion_needs_confirmation_and_keeps_history(
    admin: Client, operator: Client, operator_user: User, now: datetime
) -> None:
    make.make_run(make.make_job(make.make_cluster(now)), now)
    tokens.make(operator_user, "t", True, None, "olga", now)
    address = reverse("user-delete", args=[operator_user.pk])
    asked = admin.get(address).content.decode()
    assert "1 API token stops working" in asked
    assert User.objects.filter(pk=operator_user.pk).exists()
    assert operator.get(address).status_code == 403
    assert admin.post(address).headers["Location"] == reverse("users")
    assert not User.objects.filter(username="olga").exists()
    assert operator.get(reverse("fleet")).status_code == 302
    assert entry("user.delete").details == {"was": {"role": "operator", "email": ""}}
    assert entry("token.make").actor == "olga"
    assert "olga" in admin.get(reverse("audit")).content.decode()


def test_own_account_and_last_administrator_cannot_be_deleted(
    admin: Client, admin_user: User, viewer_user: User
) -> None:
    refused = admin.post(reverse("user-delete", args=[admin_user.pk]), follow=True)
    assert "cannot delete your own account" in refused.content.decode()
    other = User.objects.create_superuser("otto", password=PASSWORD)
    assert "Delete…" in admin.get(reverse("user", args=[other.pk])).content.decode()
    assert "Delete…" not in admin.get(reverse("user", args=[admin_user.pk])).content.decode()
    User.objects.filter(pk=other.pk).update(is_active=False)
    with pytest.raises(accounts.NotAllowed, match="only active administrator"):
        accounts.delete(admin_user, by=viewer_user)
    assert User.objects.filter(pk=admin_user.pk).exists()


def test_token_of_another_user_is_not_found(viewer: Client, operator_user: User, now: datetime) -> None:
    other = tokens.make(operator_user, "t", True, None, "olga", now).token
    assert viewer.post(reverse("token-revoke", args=[other.pk])).status_code == 404
    other.refresh_from_db()
    assert other.revoked_at is None


def test_security_headers_are_on_every_page(viewer: Client, settings: Any) -> None:
    headers = viewer.get(reverse("fleet")).headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]
    assert "Strict-Transport-Security" not in headers  # the request had no TLS
    settings.SECURE_HSTS_SECONDS = 3600
    assert "Strict-Transport-Security" in Client().get(reverse("login"), secure=True).headers
