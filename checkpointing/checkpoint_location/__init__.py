"""Spark's checkpoint location as files: what lies where, which batch is whole, what a restart can use. No JVM."""
