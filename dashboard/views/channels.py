"""Channels for notifications: the list, the page of one channel with its latest messages, and the test message."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.db.models import Count, Max, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import access_of, actor_of
from dashboard.access.roles import Role
from dashboard.forms.channel import FORMS, ChannelForm
from dashboard.forms.editing import for_editing
from dashboard.language import rendered
from dashboard.queries.messages import subjects
from dashboard.views.access import action, operator_required
from monitoring.models import Channel, ChannelKind, Delivery, DeliveryState
from monitoring.notify.addresses import without_path
from monitoring.notify.channels import (
    ChannelInUse,
    is_configured,
    name_of,
    remove_channel,
    rules_that_name_only,
    save_channel,
    snapshot,
    try_channel,
)
from monitoring.notify.message import Sent

LATEST = 10
WEEK = timedelta(days=7)


def channels(request: HttpRequest) -> HttpResponse:
    recent = Q(deliveries__created_at__gt=timezone.now() - WEEK, deliveries__is_test=False)
    found = Channel.objects.select_related("escalate_to").annotate(
        sent=Count("deliveries", filter=recent & Q(deliveries__state=DeliveryState.SENT)),
        waiting=Count("deliveries", filter=recent & Q(deliveries__state=DeliveryState.PENDING)),
        dead=Count("deliveries", filter=recent & Q(deliveries__state=DeliveryState.DEAD)),
        last_sent_at=Max("deliveries__sent_at"),
    )
    context = {"channels": found, "kinds": ChannelKind.choices, "section": "channels"}
    live = request.headers.get("HX-Target") == "channels-live"
    return render(request, "channels/channels_live.html" if live else "channels/channels.html", context)


@operator_required
def add_channel(request: HttpRequest, kind: str) -> HttpResponse:
    if kind not in ChannelKind.values:
        raise Http404("There is no such channel type.")
    return _edit(request, Channel(kind=kind))


def channel(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the channel to every account, or change it on POST."""
    if request.method == "POST":
        return change_channel(request, pk)
    return _edit(request, get_object_or_404(Channel, pk=pk))


@action
@transaction.atomic
def change_channel(request: HttpRequest, pk: int) -> HttpResponse:
    return _edit(request, get_object_or_404(for_editing(Channel.objects.all()), pk=pk))


@action
def test(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Channel, pk=pk)
    outcome = try_channel(found, actor_of(request), timezone.now())
    answer = {"answer": rendered(outcome.answer)}
    if isinstance(outcome, Sent):
        messages.success(request, _("Test message sent. The receiver answered: %(answer)s") % answer)
    else:
        messages.error(request, _("The test message was not delivered. %(answer)s") % answer)
    return redirect("channel", pk)


@operator_required
def remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or delete the channel on POST."""
    found = get_object_or_404(Channel, pk=pk)
    if request.method == "POST":
        try:
            remove_channel(found, actor_of(request), timezone.now())
        except ChannelInUse as stays:
            messages.error(request, rendered(stays.reason))
            return redirect("channel-remove", pk)
        messages.success(request, _("Channel %(name)s deleted.") % {"name": found.name})
        return redirect("channels")
    context = {
        "channel": found,
        "stuck": [(rule, name_of(rule)) for rule in rules_that_name_only(found)],
        "rules": found.rules.count(),
        "escalating": Channel.objects.filter(escalate_to=found),
        "waiting": found.deliveries.filter(state=DeliveryState.PENDING, is_test=False).count(),
        "is_last": not Channel.objects.filter(enabled=True).exclude(pk=pk).exists(),
        "comes_back": is_configured(found, settings.ALERT_MAIL, settings.ALERT_WEBHOOK),
        "section": "channels",
    }
    return render(request, "channels/remove.html", context)


def _edit(request: HttpRequest, found: Channel) -> HttpResponse:
    before = snapshot(found) if found.pk else {}
    form_class = FORMS[ChannelKind(found.kind)]
    sent = request.POST if request.method == "POST" else None
    form = form_class(sent, instance=found, may_allow_private=access_of(request).may(Role.ADMIN))
    if not access_of(request).may(Role.OPERATOR) and "url" in form.fields:
        form.initial["url"] = without_path(str(form.initial["url"]))
    if request.method != "POST":
        return _show(request, found, form)
    if not form.is_valid():
        return _show(request, found, form, 422)
    save_channel(form.instance, before, form.secret_changed, actor_of(request))
    messages.success(request, _("Channel saved. Send a test to check that messages arrive."))
    return redirect("channel", form.instance.pk)


def _show(request: HttpRequest, found: Channel, form: ChannelForm, status: int = 200) -> HttpResponse:
    latest: Iterable[Delivery] = found.deliveries.order_by("-id")[:LATEST] if found.pk else []
    context = {
        "channel": found,
        "kind": ChannelKind(found.kind),
        "form": form,
        "latest": latest,
        "subjects": subjects(latest),
        "section": "channels",
    }
    return render(request, "channels/channel.html", context, status=status)
