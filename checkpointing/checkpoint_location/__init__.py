"""Spark's checkpoint location as files: their layout, complete batches, and what a restart can use. No JVM."""
