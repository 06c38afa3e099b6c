"""Years of history at constant cost: partitions by time, roll-ups, archive."""
