"""Rules, their evaluation on stored rows, and the life of an incident. `notify` delivers what `outbox` stores."""
