"""Channels and their messages. Secrets can be written but not read."""

from __future__ import annotations

from typing import Any, Literal

from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils import timezone
from ninja import ModelSchema, Query, Schema, Status
from pydantic import Field

from dashboard.access.guard import access_of, actor_of, reach_at, require
from dashboard.access.roles import Role
from dashboard.api.errors import conflict
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.schemas.rows import DeliveryDetailOut, DeliveryOut
from dashboard.api.typed import Body, Span, checked, filled
from dashboard.forms.channel import FORMS, ChannelForm
from dashboard.queries.messages import require_to_retry, visible_messages
from monitoring.models import Channel, ChannelKind, Delivery
from monitoring.notify.addresses import without_path
from monitoring.notify.channels import (
    ChannelInUse,
    NotGivenUp,
    remove_channel,
    retry_delivery,
    save_channel,
    snapshot,
    try_channel,
)
from monitoring.notify.message import Sent
from monitoring.reasons.columns import columns, store
from monitoring.reasons.reason import SOURCE

routes = router("Channels")


class ChannelOut(ModelSchema):
    settings: dict[str, Any] = Field(
        description="Settings of the kind. Addresses come without the path, which may be a secret."
    )
    has_secret: bool
    escalate_to_id: int | None

    class Meta:
        model = Channel
        fields = (
            *("id", "name", "kind", "enabled", "allow_private", "language", "subject_template", "body_template"),
            *("group_wait_s", "messages_per_10_min", "repeat_every_s", "escalate_after_s"),
            *("summary_cron", "summary_time_zone", "summary_hours", "next_summary_at"),
        )


class ChannelFields(Body):
    """`to` and `smtp` apply to mail, `url` and `signing_secret` to webhooks, `apprise_url` to Apprise."""

    name: str = ""
    enabled: bool = True
    to: str | list[str] = Field("", description="Mail addresses.")
    smtp: str = Field("", description="The SMTP server of the channel. A secret.")
    url: str = ""
    signing_secret: str = ""
    apprise_url: str = Field("", description="The Apprise URL of the service. A secret.")
    remove_secret: bool = False
    language: str = Field(SOURCE, description=f"{' or '.join(dict(settings.LANGUAGES))}.")
    subject_template: str = ""
    body_template: str = ""
    group_wait_s: int = 10
    messages_per_10_min: int = 10
    repeat_every_s: Span = None
    escalate_after_s: Span = None
    escalate_to: int | None = Field(None, description="The id of another channel.")
    summary_cron: str = Field("", description="When a shift summary is sent, for example 0 8,20 * * *. Empty: never.")
    summary_time_zone: str = "UTC"
    summary_hours: int = Field(12, description="The hours that a summary covers: 8, 12 or 24.")
    allow_private: bool = Field(False, description="Allows private addresses. Administrators only.")


class ChannelIn(ChannelFields):
    kind: Literal["mail", "webhook", "apprise"]


class TestedOut(Schema):
    arrived: bool
    answer: str = Field(description="The response of the receiver.")
    answer_value: ReasonJson = Field(description="null: the text is what the receiver said.")


class MessagesParams(PageParams):
    state: Literal["", "pending", "sent", "dead"] = ""
    channel: int | None = Field(None, ge=1, lt=2**63)


@routes.get("/channels", response=answers(Listed[ChannelOut]), summary="List channels")
def channels(request: HttpRequest, params: Query[PageParams]) -> dict[str, Any]:
    page = page_of(Channel.objects.all(), params, ("id",))
    return page | {"items": [_channel(each) for each in page["items"]]}


@routes.get("/channels/{int:channel_id}", response=answers(ChannelOut), summary="Get a channel")
def channel(request: HttpRequest, channel_id: int) -> dict[str, Any]:
    return _channel(_find(channel_id))


@routes.post("/channels", response=answers(ChannelOut, 201), summary="Create a channel")
def add(request: HttpRequest, body: ChannelIn) -> Status[dict[str, Any]]:
    require(request, Role.OPERATOR)
    given = {name: value for name, value in body.given().items() if name != "kind"}
    return Status(201, _save(request, given, lambda: Channel(kind=body.kind)))


@routes.patch(
    "/channels/{int:channel_id}",
    response=answers(ChannelOut),
    summary="Change a channel (an empty secret keeps the stored one)",
)
def change(request: HttpRequest, channel_id: int, body: ChannelFields) -> dict[str, Any]:
    require(request, Role.OPERATOR)
    return _save(request, body.given(), lambda: _find(channel_id))


@routes.delete(
    "/channels/{int:channel_id}", response=answers(None, 204), summary="Delete a channel (its messages stay)"
)
def remove(request: HttpRequest, channel_id: int) -> Status[None]:
    require(request, Role.OPERATOR)
    try:
        remove_channel(_find(channel_id), actor_of(request), timezone.now())
    except ChannelInUse as stays:
        raise conflict(stays) from stays
    return Status(204, None)


@routes.post("/channels/{int:channel_id}/test", response=answers(TestedOut), summary="Send a test message")
def test(request: HttpRequest, channel_id: int) -> dict[str, Any]:
    require(request, Role.OPERATOR)
    outcome = try_channel(_find(channel_id), actor_of(request), timezone.now())
    return {"arrived": isinstance(outcome, Sent), **columns("answer", outcome.answer)}


@routes.get("/messages", response=answers(Listed[DeliveryOut]), summary="List messages, newest first")
def messages(request: HttpRequest, params: Query[MessagesParams]) -> dict[str, Any]:
    found = visible_messages(reach_at(request)).select_related("channel")
    found = found.filter(state=params.state) if params.state else found
    found = found.filter(channel=params.channel) if params.channel is not None else found
    return page_of(found, params, ("-id",))


@routes.get(
    "/messages/{int:message_id}", response=answers(DeliveryDetailOut), summary="Get a message with its attempts"
)
def message(request: HttpRequest, message_id: int) -> Delivery:
    return _message(request, message_id)


@routes.post(
    "/messages/{int:message_id}/retry", response=answers(DeliveryOut), summary="Retry a message that was given up"
)
def retry(request: HttpRequest, message_id: int) -> Delivery:
    found = _message(request, message_id)
    require_to_retry(request, found)
    try:
        retry_delivery(found, actor_of(request), timezone.now())
    except NotGivenUp as problem:
        raise conflict(problem) from problem
    return _message(request, message_id)


def _save(request: HttpRequest, given: dict[str, Any], channel_anew: Any) -> dict[str, Any]:
    may = access_of(request).may(Role.ADMIN)
    found = channel_anew()
    before, form_class = (snapshot(found) if found.pk else {}), FORMS[ChannelKind(found.kind)]
    if isinstance(given.get("to"), list):
        given["to"] = ", ".join(given["to"])
    data = filled(form_class(instance=found, may_allow_private=may), given)
    form: ChannelForm = form_class(data, instance=channel_anew(), may_allow_private=may)
    checked(form, hidden=(form_class.secret_field,))
    save_channel(form.instance, before, form.secret_changed, actor_of(request))
    return _channel(_find(form.instance.pk))


def _find(channel_id: int) -> Channel:
    return get_object_or_404(Channel, pk=channel_id)


def _message(request: HttpRequest, message_id: int) -> Delivery:
    seen = visible_messages(reach_at(request)).select_related("channel").prefetch_related("tries")
    found = get_object_or_404(seen, pk=message_id)
    if not reach_at(request).is_unrestricted:  # the reader may not see the channel, so hide the receiver's responses
        for attempt in found.tries.all():
            store(attempt, "answer", "")
    return found


def _channel(found: Channel) -> dict[str, Any]:
    own = {name: getattr(found, name) for name in ChannelOut.Meta.fields}
    settings = dict(found.settings)
    if "url" in settings:
        settings["url"] = without_path(str(settings["url"]))
    return own | {"settings": settings, "has_secret": bool(found.secret), "escalate_to_id": found.escalate_to_id}
