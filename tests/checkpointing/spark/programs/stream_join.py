"""Advertisements shown and clicked, joined within an hour: the stream-stream join of Spark's guide."""

from pyspark.sql.functions import expr


def program(spark, args):
    shown = spark.readStream.schema("ad long, shown_at timestamp").json(args["input"] + "/shown")
    clicked = spark.readStream.schema("clicked_ad long, clicked_at timestamp").json(args["input"] + "/clicked")
    joined = shown.withWatermark("shown_at", "2 hours").join(
        clicked.withWatermark("clicked_at", "3 hours"),
        expr("clicked_ad = ad AND clicked_at >= shown_at AND clicked_at <= shown_at + interval 1 hour"),
    )
    return joined.writeStream.queryName("stream_join").format("json").option("path", args["output"])
