"""A place for foreign programs, and the Waymark that watches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from tests.foreign.foreign_programs import Place
from tests.foreign.watching import Waymark


@pytest.fixture
def place(tmp_path: Path, java_home: Path) -> Place:
    made = Place(tmp_path / "place", {})
    made.create()
    return made


@pytest.fixture
def waymark(
    place: Place, transactional_db: None, live_server: LiveServer, redis_url: str, settings: Settings
) -> Waymark:
    settings.STATE_ROOTS = (str(place.root),)
    settings.CELERY_BROKER_URL = redis_url
    user: Any = User.objects.create_user("olga", is_staff=True)
    return Waymark(place, live_server.url, user)
