"""A query that drops repeated events, if the repetition arrives within a day."""


def program(spark, args):
    events = spark.readStream.schema("id long, at timestamp").json(args["input"])
    unique = events.withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["id"])
    return unique.writeStream.queryName("deduplication").format("json").option("path", args["output"])
