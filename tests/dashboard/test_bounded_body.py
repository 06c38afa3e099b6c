"""The allowed size of a body depends on the client. A refused body is not read, so it is not written to disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.conf import settings
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from dashboard.web_server import LARGEST_ANONYMOUS_BODY

pytestmark = pytest.mark.django_db
LARGEST = (settings.WAYMARK_MAX_PROGRAM_MB + 1) << 20
Post = Callable[..., HttpResponse]


class Unread:
    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the body is read")

    readline = read


def post(client: Client, path: str, length: int, **headers: str) -> HttpResponse:
    unread = {"wsgi.input": Unread()}
    form = "multipart/form-data; boundary=x"
    return client.generic("POST", path, b"x", form, CONTENT_LENGTH=str(length), **unread, **headers)


@pytest.mark.parametrize("length", [LARGEST_ANONYMOUS_BODY + 1, 200_000_000])
def test_anonymous_upload_is_refused(length: int) -> None:
    answer = post(Client(), reverse("login"), length)
    assert (answer.status_code, answer.content) == (413, b"Log in to upload files.")


def test_a_small_form_is_read() -> None:
    with pytest.raises(AssertionError, match="the body is read"):
        post(Client(), reverse("login"), LARGEST_ANONYMOUS_BODY)


def test_logged_in_upload_is_limited_to_a_program(viewer: Client) -> None:
    with pytest.raises(AssertionError, match="the body is read"):
        post(viewer, reverse("login"), LARGEST)
    answer = post(viewer, reverse("login"), LARGEST + 1)
    assert answer.status_code == 413
    assert f"larger than {LARGEST >> 20} MB" in answer.content.decode()


@pytest.mark.parametrize("headers", [{}, {"HTTP_AUTHORIZATION": "Bearer wmk_guessed"}])
def test_api_reads_no_anonymous_body(headers: dict[str, str]) -> None:
    assert post(Client(), "/api/v1/clusters", LARGEST, **headers).status_code == 401


def test_api_error_for_a_large_body_has_the_standard_format(viewer: Client) -> None:
    answer = post(viewer, "/api/v1/clusters", LARGEST + 1)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
