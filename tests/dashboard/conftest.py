"""Three people, and the moment of the test."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture(autouse=True)
def cheap_passwords(settings: Settings) -> None:
    """Argon2 is meant to take long; people are made in nearly every test here, and log in in few."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *settings.PASSWORD_HASHERS]


@pytest.fixture
def operator_user(db: None) -> User:
    return User.objects.create_user("olga", password="pw-olga-1", is_staff=True)


@pytest.fixture
def viewer_user(db: None) -> User:
    return User.objects.create_user("victor", password="pw-victor-1")


@pytest.fixture
def state_root(tmp_path: Path, settings: Settings) -> Path:
    """A directory below which state may be looked at."""
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
