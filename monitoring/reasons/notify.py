"""Reasons why a notification waits or was not sent, and outcomes of sending a message."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class NotifyReason(ReasonCode):
    CHANNEL_OFF = "notify.channel-off", _("the channel was switched off")
    CHANNEL_FULL = (
        "notify.channel-full",
        ngettext(
            "the channel's limit of {count} message in 10 min is reached",
            "the channel's limit of {count} messages in 10 min is reached",
            "count",
        ),
    )
    AFTER_EARLIER = "notify.after-earlier", _("an earlier message about the incident is still being delivered")
    OVER_BEFORE_TOLD = "notify.over-before-told", _("resolved before a notification was sent")
    REOPENED_BEFORE_TOLD = "notify.reopened-before-told", _("reopened before a notification was sent")
    OVER_WHILE_HIDDEN = "notify.over-while-hidden", _("resolved while another incident hid it")
    HIDDEN = "notify.hidden", _("hidden by incident {incident}")
    SILENCED = "notify.silenced", _("silenced by {window}")
    ACKNOWLEDGED = "notify.acknowledged", _("acknowledged by {by}")
    SNOOZED = "notify.snoozed", _("snoozed")
    SNOOZED_UNTIL = "notify.snoozed-until", _("snoozed until {until:minute}")

    # The outcome of a try. The receiver's answer is stored as text.
    NO_ANSWER_IN_TIME = "notify.no-answer-in-time", _("The receiver did not answer in time")
    NOT_REACHED = "notify.not-reached", _("The receiver could not be reached: {why}")
    TOO_SLOW = "notify.too-slow", _("The receiver took longer than {limit_s:.0f} s")
    TOO_SLOW_FOR_ALL = (
        "notify.too-slow-for-all",
        _("The receiver took longer than {limit_s:.0f} s for all incidents of the message"),
    )
    REDIRECTED = "notify.redirected", _("{answer} (redirects are not followed)")
    REFUSED = "notify.refused", _("{answer} (the service reports this as an error)")
    NO_INCIDENTS = "notify.no-incidents", _("There were no incidents to report")
    APPRISE_SENT = "notify.apprise-sent", _("Apprise reports that the message was sent")
    APPRISE_FAILED = "notify.apprise-failed", _("Apprise could not send the message and gave no reason")
    MAIL_TAKEN = "notify.mail-taken", _("Accepted by the mail server for {to}")
    RECIPIENTS_REFUSED = "notify.recipients-refused", _("Every recipient was refused: {refused:clauses}")
    MAIL_SERVER_ANSWERED = "notify.mail-server-answered", _("The mail server answered {code} {answer}")
    MAIL_NOT_TAKEN = "notify.mail-not-taken", _("The mail server {address} did not accept the message: {why}")
    SWITCHED_OFF = "notify.switched-off", _("The channel was switched off.")

    # Why a channel cannot send.
    BAD_SETTING = "notify.bad-setting", _("{field} is {value}: {allowed:clause}.")
    SENTENCE = "notify.sentence", _("{clause:clause}.")
    RECIPIENT_NEEDED = "notify.recipient-needed", _("at least one mail address is needed")
    MAIL_ADDRESS_NEEDED = "notify.mail-address-needed", _("a mail address like name@example.org is needed")
    URL_NEEDED = "notify.url-needed", _("an address like https://example.org/hook is needed")
    SERVICES = "notify.services", _("allowed are {schemes}")
    BAD_PARAMETER = "notify.bad-parameter", _("the parameter {name} is not allowed")
    INCOMPLETE_ADDRESS = "notify.incomplete-address", _("this is not a complete address of {service}")

    # Why a channel is not removed, or a message is not sent again.
    ONLY_CHANNEL = (
        "notify.only-channel",
        _("These rules have no other channel: {names}. Choose another channel for them first."),
    )
    CHANNEL_REMOVED = (
        "notify.channel-removed",
        _("The channel {channel} was deleted: there is nowhere to send this message."),
    )
    STILL_WAITING = "notify.still-waiting", _("This message is still queued, so there is nothing to retry.")
    SENT_ALREADY = "notify.sent-already", _("This message was sent, so there is nothing to retry.")
    TEST_GIVEN_UP = "notify.test-given-up", _("This test message was given up and cannot be retried.")
