"""Watch Structured Streaming queries that Waymark did not start, through their checkpoint locations. Read-only.

`scanning` finds the locations below a root, `query` reads one of them, and `answers` describes queries as Flink's REST
API does, so that monitoring needs no other protocol. A figure that the files do not have is null.
"""

from checkpointing.watched.query import Query, Vanished, polled
from checkpointing.watched.scanning import Found, Scan, advance

__all__ = ["Found", "Query", "Scan", "Vanished", "advance", "polled"]
