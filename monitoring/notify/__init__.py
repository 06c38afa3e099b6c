"""Deliver the notifications that `alerts/outbox.py` stored: messages, their texts, and a folder per kind of channel."""
