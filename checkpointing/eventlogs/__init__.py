"""Read the event logs of Spark applications (`spark.eventLog.dir`) for the progress of their streaming queries.

`codecs` reads whole lines of a file, `events` turns the lines of queries into reports like those of the agent, and
`reading` advances through all logs of a directory: each step reads what was appended, within limits.
"""

from checkpointing.eventlogs.events import News
from checkpointing.eventlogs.reading import Logs, advance

__all__ = ["Logs", "News", "advance"]
