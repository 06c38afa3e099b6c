"""Sinks that can be rewound and fenced: exactly-once end to end."""
