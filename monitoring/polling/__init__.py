"""Asking the clusters and turning their answers into rows, exactly once."""
