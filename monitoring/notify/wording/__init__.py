"""Render a message in the channel's language, from Waymark's templates (templates/notify) or the channel's own."""
