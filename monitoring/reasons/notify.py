"""Reasons why a notification waits or was not sent, and outcomes of sending a message."""

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

    # The outcome of a try. The receiver's answer is stored as text.
    NO_ANSWER_IN_TIME = "notify.no-answer-in-time", _("The receiver did not answer in time")
    NOT_REACHED = "notify.not-reached", _("The receiver could not be reached: {why}")
    TOO_SLOW = "notify.too-slow", _("The receiver took longer than {limit_s:.0f} s")
    TOO_SLOW_FOR_ALL = (
        "notify.too-slow-for-all",
        _("The receiver took longer than {limit_s:.0f} s for all incidents of the message"),
    )
    REDIRECTED = "notify.redirected", _("{answer} (redirects are not followed)")
    REFUSED = "notify.refused", _("{answer} (the service takes this for a refusal)")
    NO_INCIDENTS = "notify.no-incidents", _("There was nothing to tell")
    APPRISE_SENT = "notify.apprise-sent", _("Apprise says that it was sent")
    APPRISE_FAILED = "notify.apprise-failed", _("Apprise could not send it, and does not say why")
    MAIL_TAKEN = "notify.mail-taken", _("Taken by the mail server for {to}")
    RECIPIENTS_REFUSED = "notify.recipients-refused", _("Every recipient was refused: {refused:clauses}")
    MAIL_SERVER_ANSWERED = "notify.mail-server-answered", _("The mail server answered {code} {answer}")
    MAIL_NOT_TAKEN = "notify.mail-not-taken", _("The mail server {address} did not take it: {why}")
    SWITCHED_OFF = "notify.switched-off", _("The channel was switched off.")

    # Why a channel cannot send.
    BAD_SETTING = "notify.bad-setting", _("{field} is {value}: {allowed:clause}.")
    SENTENCE = "notify.sentence", _("{clause:clause}.")
    RECIPIENT_NEEDED = "notify.recipient-needed", _("at least one mail address is needed")
    MAIL_ADDRESS_NEEDED = "notify.mail-address-needed", _("a mail address like name@example.org is needed")
    URL_NEEDED = "notify.url-needed", _("an address like https://example.org/hook is needed")
    SERVICES = "notify.services", _("allowed are {schemes}")
    BAD_PARAMETER = "notify.bad-parameter", _("the parameter {name} is not allowed")
    INCOMPLETE_ADDRESS = "notify.incomplete-address", _("this is no complete address of {service}")

    # Why a channel is not removed, or a message is not sent again.
    ONLY_CHANNEL = (
        "notify.only-channel",
        _("These rules name no other channel: {names}. Choose another one for them first."),
    )
    CHANNEL_REMOVED = (
        "notify.channel-removed",
        _("The channel {channel} was deleted: there is nowhere to send this message."),
    )
    STILL_WAITING = "notify.still-waiting", _("This message is waiting: there is nothing to try again.")
    SENT_ALREADY = "notify.sent-already", _("This message is sent: there is nothing to try again.")
    TEST_GIVEN_UP = "notify.test-given-up", _("This message is given up: there is nothing to try again.")
