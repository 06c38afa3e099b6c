"""A query that reads CSV files, cleans the rows, and writes partitioned JSON files. It has no keyed state."""

from pyspark.sql.functions import col, trim, upper


def program(spark, args):
    raw = spark.readStream.schema("id long, country string, amount double").option("header", True).csv(args["input"])
    clean = raw.where(col("amount") > 0).withColumn("country", upper(trim("country")))
    writer = clean.writeStream.queryName("etl").format("json").partitionBy("country")
    return writer.option("path", args["output"]).trigger(processingTime="200 milliseconds")
