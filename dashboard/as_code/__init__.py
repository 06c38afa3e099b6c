"""Rules and channels as YAML: written in one stable form, read with line numbers, applied whole or not at all."""
