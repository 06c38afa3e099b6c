"""The settings for authentication to a ZooKeeper ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ZooKeeperScheme(Enum):
    """How a client authenticates.

    `DIGEST`: a name and password for ACLs. `SASL`: DIGEST-MD5, which the server may require.
    """

    NONE = "none"
    DIGEST = "digest"
    SASL = "sasl"


@dataclass(frozen=True)
class ZooKeeperAccessFiles:
    """The settings of ZooKeeperAccess as files that another process can read.

    `certificate` includes its chain; `key` has no password. Without `authorities`, the machine's own are trusted.
    """

    scheme: ZooKeeperScheme = ZooKeeperScheme.NONE
    username: str = ""
    password_file: str | None = None
    uses_tls: bool = False
    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
