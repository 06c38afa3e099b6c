"""Stores years of history at constant cost with partitions by time, roll-ups and an archive."""
