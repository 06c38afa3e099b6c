"""The connections to the ResourceManagers of a source."""

from __future__ import annotations

from monitoring.engine.connection import BadTls, Connection, Tls, authorization_of, trust
from monitoring.engine.errors import RequestNotSent
from monitoring.models import DiscoverySource
from monitoring.reasons.credentials import CredentialReason
from monitoring.secret import SecretUnreadable

LIMIT_S = 15.0


def connections_of(source: DiscoverySource) -> list[Connection]:
    """Return a connection for each address.

    Raises:
        RequestNotSent: a secret cannot be read, the CA bundle cannot be used, or an address is not allowed.
    """
    tls = Tls(source.ca_bundle)
    try:
        trust(tls)
        authorization = authorization_of(source)
    except BadTls as error:
        raise RequestNotSent(error.reason) from error
    except SecretUnreadable as error:
        raise RequestNotSent(CredentialReason.UNREADABLE(server=source.name, why=error.reason)) from error
    made = [Connection(address, authorization, tls, LIMIT_S) for address in source.address_list]
    for connection in made:
        connection.require_allowed()
    return made
