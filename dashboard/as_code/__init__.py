"""Export rules and channels as YAML in a stable order, and import them completely or not at all."""
