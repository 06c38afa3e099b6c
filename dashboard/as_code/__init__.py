"""Export rules, channels and objectives as YAML in a stable order, and import them completely or not at all."""
