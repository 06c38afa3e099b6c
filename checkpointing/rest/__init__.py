"""Flink's REST API over the dispatcher."""
