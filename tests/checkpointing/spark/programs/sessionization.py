"""Users' clicks grouped into sessions, which end ten minutes after the last click.

It uses transformWithState with event-time timers.
"""

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

GAP_MS = 10 * 60 * 1000
CLICKS = "user string, at timestamp"
SESSION = "user string, began long, ended long, clicks int"


class Sessions(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.open = handle.getValueState("open", "began long, ended long, clicks int")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N803 - Spark's names
        for at in sorted(int(row.at.timestamp() * 1000) for row in rows):
            session = self.open.get()
            if session is not None and at - session[1] > GAP_MS:
                yield from self.end(key)
                session = None
            if session is not None:
                self.handle.deleteTimer(session[1] + GAP_MS)
                self.open.update((session[0], at, session[2] + 1))
            else:
                self.open.update((at, at, 1))
            self.handle.registerTimer(at + GAP_MS)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N803
        yield from self.end(key)

    def end(self, key):
        began, ended, clicks = self.open.get()
        self.open.clear()
        self.handle.deleteTimer(ended + GAP_MS)
        yield Row(user=key[0], began=began, ended=ended, clicks=clicks)

    def close(self):
        pass


def program(spark, args):
    clicks = spark.readStream.schema(CLICKS).json(args["input"]).withWatermark("at", "1 minute")
    sessions = clicks.groupBy("user").transformWithState(
        statefulProcessor=Sessions(), outputStructType=SESSION, outputMode="Append", timeMode="EventTime"
    )
    return sessions.writeStream.queryName("sessionization").format("json").option("path", args["output"])
