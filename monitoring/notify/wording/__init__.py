"""A message in a channel's language, in Waymark's words (templates/notify) or in the channel's own."""
