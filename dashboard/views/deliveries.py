"""Messages to channels: the list, one message with its delivery attempts, and the retry of a failed message."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.access.guard import access_of, actor_of, reach_at
from dashboard.language import rendered
from dashboard.queries.messages import may_retry, require_to_retry, subjects, visible_channels, visible_messages
from monitoring.models import Delivery, DeliveryAttempt, DeliveryState
from monitoring.notify.channels import NotGivenUp, retry_delivery
from monitoring.notify.shift import from_stored

PAGE_SIZE = 50
INCIDENTS_SHOWN = 100


def deliveries(request: HttpRequest) -> HttpResponse:
    state, channel = request.GET.get("state", ""), request.GET.get("channel", "")
    newest = DeliveryAttempt.objects.filter(delivery=OuterRef("pk")).order_by("-id")
    seen = visible_messages(reach_at(request)).select_related("channel")
    found = seen.annotate(
        notification_count=Count("notifications"),
        answer=Subquery(newest.values("answer")[:1]),
        answer_value=Subquery(newest.values("answer_value")[:1]),
    )
    if state in DeliveryState.values:
        found = found.filter(state=state)
    if channel.isdecimal() and len(channel) < 19:
        found = found.filter(channel=int(channel))
    page = Paginator(found.order_by("-id"), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "subjects": subjects(page),
        "chosen": state,
        "channel": channel,
        "states": DeliveryState.choices,
        "channels": visible_channels(reach_at(request)),
        "section": "deliveries",
    }
    live = request.headers.get("HX-Target") == "deliveries-live"
    return render(request, "channels/deliveries_live.html" if live else "channels/deliveries.html", context)


def delivery(request: HttpRequest, pk: int) -> HttpResponse:
    found = _find(request, pk)
    notifications = found.notifications.select_related("event__incident__job", "event__incident__cluster")
    context = {
        "delivery": found,
        "subjects": subjects([found]),
        "tries": found.tries.all(),
        "notifications": notifications[:INCIDENTS_SHOWN],
        "notification_count": notifications.count(),
        "shift": from_stored(found.summary) if found.summary is not None else None,
        "may_act": may_retry(access_of(request), found),
        "section": "deliveries",
    }
    live = request.headers.get("HX-Target") == "delivery-live"
    return render(request, "channels/delivery_live.html" if live else "channels/delivery.html", context)


@require_POST
def retry(request: HttpRequest, pk: int) -> HttpResponse:
    found = _find(request, pk)
    require_to_retry(request, found)
    try:
        retry_delivery(found, actor_of(request), timezone.now())
    except NotGivenUp as problem:
        messages.warning(request, rendered(problem.reason))
    else:
        messages.success(request, _("Waymark sends the message again now, with the same key."))
    return redirect("delivery", pk)


def _find(request: HttpRequest, pk: int) -> Delivery:
    return get_object_or_404(visible_messages(reach_at(request)).select_related("channel"), pk=pk)
