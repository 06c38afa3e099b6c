"""All errors have one format, also those that Django or Django Ninja raises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.access import tokens
from monitoring.models import ApiToken, Job
from tests.dashboard.api.conftest import Caller


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/json"
    body: dict[str, Any] = response.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["code", "message", "reason", "fields"]
    assert body["error"]["message"]
    found: dict[str, Any] = body["error"]
    return found


def test_request_without_a_token_returns_401(db: None) -> None:
    response = Client().get("/api/v1/jobs")
    assert problem(response, 401)["code"] == "unauthenticated"
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("given", ["Bearer wmk_wrong", "Bearer ", "Basic b2xnYTpwdw==", "nonsense"])
def test_invalid_token_is_refused_even_with_a_session(operator: Client, given: str) -> None:
    problem(operator.get("/api/v1/jobs", headers={"Authorization": given}), 401)


def test_missing_object_returns_404(api: Caller) -> None:
    for path in ("/jobs/987654", "/nothing", "/jobs/99999999999999999999", "/jobs/-1", "/"):
        assert problem(api.get(path), 404)["code"] == "not_found"


def test_other_method_returns_405_with_the_allowed_methods(api: Caller) -> None:
    response = api.send("delete", "/jobs")
    assert problem(response, 405)["code"] == "method_not_allowed"
    assert response.headers["Allow"] == "GET"


def test_a_body_that_is_not_json_is_refused(api: Caller, job: Job) -> None:
    path = f"/api/v1/jobs/{job.pk}/automation"
    typed = Client().patch(path, "a=b", content_type="application/x-www-form-urlencoded", headers=api.headers)
    assert problem(typed, 415)["code"] == "unsupported_media_type"
    broken = Client().patch(path, "{", content_type="application/json", headers=api.headers)
    assert problem(broken, 400)["code"] == "malformed"


def test_an_invalid_value_is_reported_with_the_allowed_values(api: Caller, job: Job) -> None:
    (wrong,) = problem(api.send("patch", f"/jobs/{job.pk}/automation", {"max_restarts_per_hour": 99}), 422)["fields"]
    assert wrong == {"field": "max_restarts_per_hour", "value": "99", "message": "At most 60."}
    for budget in ("max_restarts_per_hour", "max_restarts_per_day"):
        (wrong,) = problem(api.send("patch", f"/jobs/{job.pk}/automation", {budget: 0}), 422)["fields"]
        assert (wrong["field"], wrong["value"]) == (budget, "0")
        assert wrong["message"].startswith("Enter at least 1.")
    (wrong,) = problem(api.send("patch", f"/jobs/{job.pk}/automation", {"auto_restrat": True}), 422)["fields"]
    assert wrong["field"] == "auto_restrat"


def test_rate_limit_returns_retry_after(api: Caller, settings: Any) -> None:
    settings.API_CALLS_PER_MINUTE = 3
    codes = [api.get("/me").status_code for _ in range(12)]  # the calls span at most two windows of a minute
    assert 429 in codes
    response = next(answer for answer in (api.get("/me") for _ in range(8)) if answer.status_code == 429)
    assert problem(response, 429)["code"] == "too_many_requests"
    assert 0 < int(response.headers["Retry-After"]) <= 60


def test_api_responds_without_redis(api: Caller, settings: Any) -> None:
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    settings.API_CALLS_PER_MINUTE = 1
    assert [api.get("/me").status_code for _ in range(3)] == [200] * 3


def test_a_session_can_read_and_needs_the_csrf_token_for_changes(operator_user: User, job: Job) -> None:
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(operator_user)
    assert careful.get("/api/v1/me").json()["token"] is None
    assert problem(careful.post(f"/api/v1/jobs/{job.pk}/savepoints"), 403)["code"] == "forbidden"
    assert not job.savepoints.exists()


def test_a_token_that_may_read_changes_nothing(caller_of: Callable[..., Caller], operator_user: User, job: Job) -> None:
    reader = caller_of(operator_user, may_write=False)
    assert "This token can only read" in problem(reader.post(f"/jobs/{job.pk}/savepoints"), 403)["message"]
    assert not job.savepoints.exists()


def test_a_token_has_no_more_rights_than_its_user(
    caller_of: Callable[..., Caller], viewer_user: User, job: Job
) -> None:
    writer = caller_of(viewer_user, may_write=True)
    problem(writer.post(f"/jobs/{job.pk}/savepoints"), 403)


def test_expired_and_revoked_tokens_and_those_of_inactive_users_are_refused(
    caller_of: Callable[..., Caller], operator_user: User, now: datetime
) -> None:
    late, gone, left = (caller_of(operator_user) for _ in range(3))
    rows = list(ApiToken.objects.order_by("id"))
    assert all(each.get("/me").status_code == 200 for each in (late, gone, left))
    ApiToken.objects.filter(pk=rows[0].pk).update(expires_at=now - timedelta(seconds=1))
    tokens.revoke(rows[1], "olga", now)
    assert [each.get("/me").status_code for each in (late, gone, left)] == [401, 401, 200]
    User.objects.filter(pk=operator_user.pk).update(is_active=False)
    problem(left.get("/me"), 401)


def test_only_a_digest_of_a_token_is_stored(api: Caller) -> None:
    secret = api.headers["Authorization"].removeprefix("Bearer ")
    row = ApiToken.objects.values().get()
    assert not any(secret in str(value) for value in row.values())
    assert secret.startswith(row["start"])
    assert len(row["start"]) < 12
