"""Access control: roles, grants, log-in, sessions, tokens, and the check of every request."""
