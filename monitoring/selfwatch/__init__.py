"""Waymark monitors itself, because without alerts people would assume that all jobs are healthy."""
