"""From an incident's event to people: the outbox, its delivery, and one folder per kind of channel."""
