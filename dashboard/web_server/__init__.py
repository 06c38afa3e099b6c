"""The web server: gunicorn's settings, and a worker whose threads wait for no client."""

# Bytes of a body that a caller without a log-in may send: room for every form that needs none.
LARGEST_ANONYMOUS_BODY = 64 * 1024
