"""What is remembered of a job's checkpoints: Flink's CheckpointStatsTracker (see `stats_model` for the values)."""
