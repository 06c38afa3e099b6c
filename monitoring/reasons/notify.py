"""What a notification waits for, or why nobody was told."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class NotifyReason(ReasonCode):
    CHANNEL_OFF = "notify.channel-off", _("the channel was switched off")
    CHANNEL_FULL = "notify.channel-full", _("the channel's limit of {count} messages in 10 min is reached")
    AFTER_EARLIER = "notify.after-earlier", _("an earlier message about it is on its way")
    OVER_BEFORE_TOLD = "notify.over-before-told", _("resolved before it was told")
    OVER_WHILE_HIDDEN = "notify.over-while-hidden", _("resolved while another incident hid it")
    HIDDEN = "notify.hidden", _("hidden by incident {incident}")
    SILENCED = "notify.silenced", _("silenced by {window}")
    ACKNOWLEDGED = "notify.acknowledged", _("acknowledged by {by}")
    SNOOZED = "notify.snoozed", _("snoozed")
    SNOOZED_UNTIL = "notify.snoozed-until", _("snoozed until {until:minute}")
