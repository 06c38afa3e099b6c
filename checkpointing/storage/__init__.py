"""Where snapshots lie: layout, manifest (`_metadata`), shared state, verification, disposal."""
