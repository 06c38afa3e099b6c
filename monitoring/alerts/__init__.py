"""Rules, their evaluation on stored rows, and the life of an incident. `notify` carries what changed to people."""
