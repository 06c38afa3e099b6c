"""Every operation of the OpenAPI document is called with generated input that the document allows.

No call fails with a server error, and each response matches the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import one_of
from schemathesis import GenerationMode
from schemathesis.openapi import from_dict
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dashboard.access import tokens
from dashboard.api.document import document
from dashboard.wsgi import application
from monitoring.models import Cluster, Discovery, SavedView, StateRead
from tests.dashboard.access.sample_rows import Rows, rows_of_every_kind

EXAMPLES = 3  # number of examples for each operation
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Keep the test's transaction open during requests, as Django's test client does."""
    ends = (request_started, request_finished)
    for signal in ends:
        signal.disconnect(close_old_connections)
    yield
    for signal in ends:
        signal.connect(close_old_connections)


@pytest.fixture
def rows(db: None, now: datetime) -> Rows:
    return rows_of_every_kind(now, "whole")


@pytest.fixture
def headers(rows: Rows, one_connection: None, now: datetime, redis_url: str, settings: Any) -> dict[str, str]:
    settings.CELERY_BROKER_URL, settings.API_CALLS_PER_MINUTE = redis_url, 1_000_000
    settings.ALLOWED_HOSTS = ["*"]
    admin = User.objects.create_superuser("anna")
    rows.ids["view_id"] = SavedView.objects.create(user=admin, name="mine", query="state=failing").pk
    asked = StateRead.objects.create(job=rows.job, kind="list", snapshot=1, label="checkpoint 1", asked_at=now)
    rows.ids["read_id"] = asked.pk
    # The client does not decode compressed responses.
    plain = {"Accept-Encoding": "identity"}
    return plain | {
        "Authorization": f"Bearer {tokens.make(admin, 't', True, now + timedelta(days=1), 'anna', now).secret}"
    }


@pytest.fixture
def reporting(headers: dict[str, str], now: datetime) -> dict[str, str]:
    """Return the headers with a token for reports."""
    cluster = Cluster.objects.create(name="reported", discovery=Discovery.AGENT)
    made = tokens.make(User.objects.get(username="anna"), "report", False, None, "anna", now, cluster)
    return headers | {"Authorization": f"Bearer {made.secret}"}


def test_each_operation_conforms_to_the_openapi_document(
    subtests: pytest.Subtests, headers: dict[str, str], reporting: dict[str, str], rows: Rows
) -> None:
    """Call each operation on existing rows, and roll back its changes."""
    schema = from_dict(deepcopy(document()))  # it changes the document, which the process keeps
    schema.app = application
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]
    assert operations
    for operation in operations:
        first = operation.path.removeprefix("/api/v1/").partition("/")[0]
        with subtests.test(operation.label):
            _check(operation, rows.ids, first, reporting if first == "agent" else headers)


def _check(operation: Any, ids: Mapping[str, int], first: str, headers: Mapping[str, str]) -> None:
    of_it = ids.get(first, 1)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(one_of(operation.as_strategy(), operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)))
    def conforms(case: Any) -> None:
        case.path_parameters = {name: ids.get(name, of_it) for name in case.path_parameters or {}}
        with transaction.atomic():
            response = case.call(headers=headers)
            transaction.set_rollback(True)
        # Other methods give 405. A body may name missing rows and give 404, but the URLs name existing rows.
        assert response.status_code not in ((401, 403, 404) if case.method == "GET" else (401, 403))
        case.validate_response(response, checks=CHECKS)

    conforms()
