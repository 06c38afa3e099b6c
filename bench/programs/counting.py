"""A stateful query on made-up rows: `--rows` per batch over `--keys` keys, a batch every `--every`."""


def counting(spark, args):
    """For the job manager; `bare` runs the very same."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", args["rows"]).load()
    counts = rows.selectExpr(f"value % {args['keys']} AS key").groupBy("key").count()
    writer = counts.writeStream.outputMode("update").queryName("counting").foreachBatch(_count)
    return writer.trigger(processingTime=args["every"])


def _count(frame, batch):
    frame.write.format("noop").mode("append").save()


def bare(settings, location, args):
    """The script that a user would write: a session, the query, wait."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("bare")
    for key, value in settings.items():
        builder = builder.config(key, value)
    writer = counting(builder.getOrCreate(), args)
    writer.option("checkpointLocation", location).start().awaitTermination()


if __name__ == "__main__":
    import json
    import sys

    bare(*json.loads(sys.argv[1]))
