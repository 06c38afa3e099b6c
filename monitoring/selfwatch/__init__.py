"""Waymark watches itself: whoever is not told that the watcher is blind takes silence for health."""
