"""Polls the clusters and stores their answers as rows, exactly once."""
