"""The embedded installation: every server and process of Waymark on one machine, under one supervisor."""
