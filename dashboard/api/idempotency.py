"""A call with an `Idempotency-Key` is done once, however often it is sent.

Its answer is written in the transaction of the act: either both are there or neither, so a call that was cut off may be
sent again with the same key. Two at once: the second waits at the key's row until the first has ended.

An act that asks an engine commits what it is about to ask before it does (`Intent`), and its answer later. Cut off in
between, the call may come again, too: the act then finds what it was about.
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
KEPT = timedelta(days=1)
LONGEST = 200


def once(request: HttpRequest, get_response: Answer) -> HttpResponse:
    key = request.headers.get(HEADER, "")
    if not key or request.method not in CHANGING:
        return get_response(request)
    if len(key) > LONGEST or not key.isprintable() or not key.isascii():
        return answer_of(400, f"{HEADER}: at most {LONGEST} printable ASCII characters are allowed.")
    with _Keyed(request.user.pk or 0, key) as keyed:
        _carry(request, keyed)
        return _answered(request, keyed, get_response)


class _Keyed(Intent):
    """The key's row, locked, in a transaction that ends with the context."""

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
        # The same call again, that came in between, asks for the same thing. It ends first.
        self.rows.select_for_update().first()


def intent_at(request: HttpRequest) -> Intent:
    """Of the call that this request is."""
    found: Intent = getattr(request, "waymark_intent", None) or Intent()
    return found


def _carry(request: HttpRequest, keyed: _Keyed) -> None:
    request.waymark_intent = keyed  # type: ignore[attr-defined]


def _answered(request: HttpRequest, keyed: _Keyed, get_response: Answer) -> HttpResponse:
    now, digest, rows = timezone.now(), _digest(request), keyed.rows
    IdempotentAnswer.objects.filter(user=request.user.pk, at__lt=now - KEPT).delete()
    # 1. The key's row, ours or that of a call before us; the insert waits for a call that is under way.
    IdempotentAnswer.objects.bulk_create([keyed.new_row(digest, now)], ignore_conflicts=True)
    row = keyed.locked()
    if row.digest != digest:
        return answer_of(409, f"{HEADER}: this key was used for a different request. Use a new key.")
    if row.status is not None:
        return _again(row)
    # 2. The act, and what came of it.
    keyed.earlier = row.about
    response = get_response(request)
    if response.status_code < 400:
        rows.update(status=response.status_code, body=response.content)
    elif response.status_code == UNKNOWN:
        pass  # what was asked for, and of what, stays; the same call may be tried again
    elif keyed.committed and response.status_code < 500:
        rows.delete()  # the engine said no, which the audit keeps; the same call is a new one
    else:
        transaction.set_rollback(True)  # nothing was done, or nobody knows how far it came
    return response


def _again(row: IdempotentAnswer) -> HttpResponse:
    headers = {"Idempotency-Replayed": "true"}
    return HttpResponse(bytes(row.body), status=row.status, content_type="application/json", headers=headers)


def _digest(request: HttpRequest) -> str:
    digest = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode())
    if request.content_type != "multipart/form-data":
        digest.update(request.body)
        return digest.hexdigest()
    for file in (each for name in sorted(request.FILES) for each in request.FILES.getlist(name)):
        digest.update(f"{file.name} {file.size}\n".encode())
        for part in file.chunks():  # never as a whole in memory
            digest.update(part)
        file.seek(0)
    return digest.hexdigest()
