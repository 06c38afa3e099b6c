"""Accounts with the three roles, and the time of the test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from monitoring.models import Job
from tests.monitoring.discovery.operated_job import make_job
from tests.monitoring.discovery.played_kubernetes import PlayedKubernetes
from tests.monitoring.discovery.played_operator import PlayedOperator
from tests.monitoring.fake_job_manager import running_job_manager


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture(autouse=True)
def cheap_passwords(settings: Settings) -> None:
    """Use a fast hasher, because Argon2 is slow and nearly every test creates accounts."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *settings.PASSWORD_HASHERS]


@pytest.fixture
def operator_user(db: None) -> User:
    return User.objects.create_user("olga", password="pw-olga-1", is_staff=True)


@pytest.fixture
def viewer_user(db: None) -> User:
    return User.objects.create_user("victor", password="pw-victor-1")


@pytest.fixture
def operated() -> Iterator[PlayedOperator]:
    with running_job_manager() as jobs, PlayedKubernetes().serving() as kubernetes:
        yield PlayedOperator(kubernetes, jobs)


@pytest.fixture
def operated_job(operated: PlayedOperator, db: None) -> Job:
    return make_job(operated, operated.create("orders"), "orders")


@pytest.fixture
def state_root(tmp_path: Path, settings: Settings) -> Path:
    """Return a directory whose snapshots Waymark may check."""
    settings.STATE_ROOTS = (str(tmp_path),)
    return tmp_path


@pytest.fixture
def stranger() -> Client:
    return Client()


@pytest.fixture
def operator(operator_user: User) -> Client:
    client = Client()
    client.force_login(operator_user)
    return client


@pytest.fixture
def viewer(viewer_user: User) -> Client:
    client = Client()
    client.force_login(viewer_user)
    return client
