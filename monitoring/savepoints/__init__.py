"""Savepoints: asked for by a schedule, a person or a restart, and followed until they are done."""
