"""A stateful query on generated rows, with `rows` per batch, `keys` different keys, and a batch every `every`."""


def counting(spark, args):
    """Return the query for the job manager. `bare` runs the same query."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", args["rows"]).load()
    counts = rows.selectExpr(f"value % {args['keys']} AS key").groupBy("key").count()
    writer = counts.writeStream.outputMode("update").queryName("counting").foreachBatch(_count)
    return writer.trigger(processingTime=args["every"])


def _count(frame, batch):
    frame.write.format("noop").mode("append").save()


def bare(settings, location, args):
    """Run the query as a user's script does: create a session, start the query, and wait."""
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
