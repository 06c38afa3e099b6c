"""Restarts a job exactly once: evidence → decision → attempt → steps. The attempt's row is the guard."""
