"""Reasons why Waymark does not connect to an address that a person entered."""

from __future__ import annotations

from monitoring.marking import marked as _
from monitoring.reasons.reason import ReasonCode


class AddressReason(ReasonCode):
    TOO_LONG = "addresses.too-long", _("An address can have at most {most} characters; this one has {count}.")
    BAD_CHARACTERS = (
        "addresses.bad-characters",
        _("An address cannot contain spaces, control characters or backslashes."),
    )
    UNREADABLE = "addresses.unreadable", _("This is not a valid address: {error}.")
    BAD_SCHEME = "addresses.bad-scheme", _("An address must begin with http:// or https://.")
    NO_HOST = "addresses.no-host", _("The host is missing: {scheme}://host:port is needed.")
    HAS_CREDENTIALS = (
        "addresses.has-credentials",
        _("An address must not contain a name or a password, because it is shown and stored."),
    )
    BAD_HOST = "addresses.bad-host", _("{host!r} is not a valid host name.")
    UNRESOLVED = "addresses.unresolved", _("The name {host} does not resolve: {error}.")
    WITHOUT_ADDRESS = "addresses.without-address", _("The name {host} resolves to no address.")

    FORBIDDEN = (
        "addresses.forbidden",
        _("{host} is {kind}. {what} may not point there unless an administrator allows it ({how})."),
    )
    NAME_FORBIDDEN = (
        "addresses.name-forbidden",
        _("{host} is {address}, {kind}. {what} may not point there unless an administrator allows it ({how})."),
    )
    CHANNEL = "addresses.channel", _("A channel")
    CLUSTER = "addresses.cluster", _("A cluster's address")
    BOX_OR_SETTING = (
        "addresses.box-or-setting",
        _("with the channel's option “May lead to a private address”, or with WAYMARK_OUTBOUND_ALLOW"),
    )
    METADATA = "addresses.metadata", _("the address at which clouds issue credentials")
    LINK_LOCAL = "addresses.link-local", _("a link-local address")
    MULTICAST = "addresses.multicast", _("a multicast address")
    UNSPECIFIED = "addresses.unspecified", _("not the address of a server")
    LOOPBACK = "addresses.loopback", _("this machine itself")
    RESERVED = "addresses.reserved", _("a reserved address")
    PRIVATE = "addresses.private", _("a private address")
