"""Carry out a request with an `Idempotency-Key` once, however often it is sent.

The response is stored in the transaction of the action, so an interrupted request may be sent again with the same key.
If two requests with the same key arrive together, the second waits at the key's row until the first has ended.

An action that sends a request to an engine commits its intention first (`Intent`), and the response later. If it is
interrupted in between, the repeated request finds the intention.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from dashboard.access.guard import CHANGING
from dashboard.acts.intents import Intent
from dashboard.api.errors import UNKNOWN, answer_of
from monitoring.models import IdempotentAnswer

Answer = Callable[[HttpRequest], HttpResponse]

HEADER = "Idempotency-Key"
RETENTION = timedelta(days=1)
LONGEST = 200


def handle_once(request: HttpRequest, get_response: Answer) -> HttpResponse:
    key = request.headers.get(HEADER, "")
    if not key or request.method not in CHANGING:
        return get_response(request)
    if len(key) > LONGEST or not key.isprintable() or not key.isascii():
        return answer_of(400, f"{HEADER}: at most {LONGEST} printable ASCII characters are allowed.")
    with _Keyed(request.user.pk or 0, key) as keyed:
        _store_intent(request, keyed)
        return _answered(request, keyed, get_response)


class _Keyed(Intent):
    """The locked row of a key, in a transaction that ends with the context."""

    def __init__(self, user_id: int, key: str) -> None:
        self._user_id, self._key = user_id, key
        self.rows = IdempotentAnswer.objects.filter(user=user_id, key=key)
        self.committed = False
        self._transaction = ExitStack()

    def __enter__(self) -> Self:
        self._transaction.enter_context(transaction.atomic())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._transaction.__exit__(kind, raised, trace)

    def new_row(self, digest: str, now: datetime) -> IdempotentAnswer:
        return IdempotentAnswer(user_id=self._user_id, key=self._key, digest=digest, at=now)

    def locked(self) -> IdempotentAnswer:
        return self.rows.select_for_update().get()

    def commit(self, **about: int) -> None:
        self.rows.update(about=about)
        self._transaction.close()
        self.committed = True
        self._transaction.enter_context(transaction.atomic())
        # Lock the row again. A repetition of the request that came in between has the same intention and ends first.
        self.rows.select_for_update().first()


def intent_at(request: HttpRequest) -> Intent:
    """Return the intent of the request: that of its `Idempotency-Key`, or one without effect if it has no key."""
    found: Intent = getattr(request, "waymark_intent", None) or Intent()
    return found


def _store_intent(request: HttpRequest, keyed: _Keyed) -> None:
    request.waymark_intent = keyed  # type: ignore[attr-defined]


def _answered(request: HttpRequest, keyed: _Keyed, get_response: Answer) -> HttpResponse:
    now, digest, rows = timezone.now(), _digest(request), keyed.rows
    IdempotentAnswer.objects.filter(user=request.user.pk, at__lt=now - RETENTION).delete()
    # 1. Create the key's row, unless an earlier request has. The insert waits for a request that is in progress.
    IdempotentAnswer.objects.bulk_create([keyed.new_row(digest, now)], ignore_conflicts=True)
    row = keyed.locked()
    if row.digest != digest:
        return answer_of(409, f"{HEADER}: this key was used for a different request. Use a new key.")
    if row.status is not None:
        return _repeat_response(row)
    # 2. Carry out the action, and store its response.
    keyed.earlier = row.about
    response = get_response(request)
    if response.status_code < 400:
        rows.update(status=response.status_code, body=response.content)
    elif response.status_code == UNKNOWN:
        pass  # keep the row with the intention; the same request may be sent again
    elif keyed.committed and response.status_code < 500:
        rows.delete()  # the engine refused; the audit log has it, and a repeated request is a new one
    else:
        transaction.set_rollback(True)  # nothing was done, or the progress is unknown
    return response


def _repeat_response(row: IdempotentAnswer) -> HttpResponse:
    headers = {"Idempotency-Replayed": "true"}
    return HttpResponse(bytes(row.body), status=row.status, content_type="application/json", headers=headers)


def _digest(request: HttpRequest) -> str:
    digest = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode())
    if request.content_type != "multipart/form-data":
        digest.update(request.body)
        return digest.hexdigest()
    for file in (each for name in sorted(request.FILES) for each in request.FILES.getlist(name)):
        digest.update(f"{file.name} {file.size}\n".encode())
        for part in file.chunks():  # do not load the whole file into memory
            digest.update(part)
        file.seek(0)
    return digest.hexdigest()
