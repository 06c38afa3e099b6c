"""A call with an `Idempotency-Key` is done once, however often it is sent.

Its answer is written in the transaction of the act: either both are there or neither, so a call that was cut off may be
sent again with the same key. Two at once: the second waits at the key's row until the first has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from dashboard.access.guard import CHANGING
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
    with transaction.atomic():
        return _answered(request, key, get_response)


def _answered(request: HttpRequest, key: str, get_response: Answer) -> HttpResponse:
    now, digest = timezone.now(), _digest(request)
    rows = IdempotentAnswer.objects.filter(user=request.user.pk)
    rows.filter(at__lt=now - KEPT).delete()
    # 1. The key's row, ours or that of a call before us; the insert waits for a call that is under way.
    IdempotentAnswer.objects.bulk_create(
        [IdempotentAnswer(user_id=request.user.pk or 0, key=key, digest=digest, at=now)], ignore_conflicts=True
    )
    row = rows.select_for_update().get(key=key)
    if row.digest != digest:
        return answer_of(409, f"{HEADER}: this key was used for another call. A new call needs a new key.")
    if row.status is not None:
        return _again(row)
    # 2. The act, and what came of it.
    response = get_response(request)
    if response.status_code == UNKNOWN:
        return response  # what was asked for stays in the audit; the same call may be tried again
    if response.status_code >= 400:  # nothing was done: so it may here
        transaction.set_rollback(True)
    else:
        rows.filter(pk=row.pk).update(status=response.status_code, body=response.content)
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
