"""Deliver what `alerts/outbox.py` stored: messages, their wording, and one folder per kind of channel."""
