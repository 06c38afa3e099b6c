"""Clients of the API with tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.access import tokens
from monitoring.models import Job
from tests.dashboard import builders as make


@dataclass(frozen=True)
class Caller:
    headers: dict[str, str]

    def get(self, path: str, **query: Any) -> Any:
        return Client().get(f"/api/v1{path}", query, headers=self.headers)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        call = getattr(Client(), method)
        sent = "" if body is None else json.dumps(body)
        return call(f"/api/v1{path}", sent, content_type="application/json", headers=self.headers | headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.send("post", path, body, **headers)


@pytest.fixture
def caller_of(db: None, now: datetime, redis_url: str, settings: Any) -> Callable[..., Caller]:
    settings.CELERY_BROKER_URL = redis_url
    settings.API_CALLS_PER_MINUTE = 100_000

    def make_one(user: User, *, may_write: bool = True) -> Caller:
        name = f"token {user.api_tokens.count()}"
        secret = tokens.make(user, name, may_write, now + timedelta(days=1), user.username, now).secret
        return Caller({"Authorization": f"Bearer {secret}"})

    return make_one


@pytest.fixture
def api(caller_of: Callable[..., Caller], operator_user: User) -> Caller:
    return caller_of(operator_user)


@pytest.fixture
def admin_api(caller_of: Callable[..., Caller]) -> Caller:
    return caller_of(User.objects.create_user("anna", is_staff=True, is_superuser=True))


@pytest.fixture
def job(db: None, now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_operators(make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=7)))
    return job
